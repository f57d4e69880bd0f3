"""Runs a data set on a device, and sums up how right the outputs are."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.base.arrays import numpy_dtype
from edgekit.base.errors import InputError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import did_you_mean
from edgekit.devices.carried import CarriedState, run_in_order
from edgekit.models.binding import closed
from edgekit.verbs.evaluation.classification import classification, keyword
from edgekit.verbs.evaluation.detection import detection
from edgekit.verbs.evaluation.journal import journal
from edgekit.verbs.evaluation.regression import regression
from edgekit.verbs.evaluation.report import EvaluationReport, Metric, limits_of
from edgekit.verbs.evaluation.segmentation import segmentation
from edgekit.verbs.evaluation.task import Item, Outputs, Task
from edgekit.verbs.recording import keep_evaluation
from edgekit.verbs.run import real_values

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import RunsBundles
    from edgekit.models.model import ModelSource

TASKS: Mapping[str, Callable[[Bundle, Path], Task]] = {
    "classification": classification,
    "detection": detection,
    "keyword": keyword,
    "regression": regression,
    "segmentation": segmentation,
}
"""The reader of a data set for each task."""


class _Model:
    """A model in its own runtime, with the inputs that the bundle takes."""

    def __init__(self, bundle: Bundle, source: ModelSource) -> None:
        from edgekit.models.ends import Ends
        from edgekit.models.model import as_built, signature_of
        from edgekit.models.oracle import oracle_for
        from edgekit.models.oracle_ends import with_ends

        manifest = bundle.manifest
        self._inputs = {entry.spec.name: entry.spec for entry in manifest.inputs}
        self._outputs = {entry.spec.name: entry.spec for entry in manifest.outputs}
        source = as_built(source, manifest.model.sha256, [*self._inputs.values()])
        self._is_of_bundle = source.sha256 == manifest.model.sha256
        if not self._is_of_bundle and not source.ends:
            prepared = {one.spec.name: one.preprocess for one in manifest.inputs if one.preprocess}
            source = replace(source, ends=Ends(prepared, manifest.postprocess))
        self._oracle = oracle_for(source)
        if self._is_of_bundle:
            ends = [*self._inputs.values()], [*self._outputs.values()]
            self._oracle = with_ends(self._oracle, source, ends)
        self.source = source
        self._signature = signature_of(source)
        self.name = f"{source.path.name} by {self._oracle.name} {self._oracle.version}"

    def run(self, inputs: Mapping[str, Array]) -> Outputs:
        if self._is_of_bundle:
            return _real(self._oracle.run(inputs), self._outputs)
        taken = {spec.name: spec.dtype for spec in self._signature.inputs}
        missing = [name for name in taken if name not in inputs]
        if missing:
            raise InputError(
                f"{self.source.path.name} has an input {missing[0]!r}, and the bundle has not",
                hint="name a model whose inputs have the names of the bundle's",
            )
        outputs = self._oracle.run(
            {name: self._converted(name, inputs[name], dtype) for name, dtype in taken.items()}
        )
        own = {spec.name: spec for spec in self._signature.outputs}
        specs = {
            name: closed(own[name], array.shape) if name in own else self._outputs[name]
            for name, array in outputs.items()
        }
        return _real(outputs, specs)

    def _converted(self, name: str, array: Array, dtype: str) -> Array:
        """Return an input as another model takes it, such as the float model of a quantised one."""
        if self._inputs[name].dtype == dtype or name in self.source.ends.pictures:
            return array
        if self._inputs[name].quantization is None:
            raise InputError(
                f"the input {name!r} is {self._inputs[name].dtype} in the bundle and {dtype} in "
                f"{self.source.path.name}",
                hint="name a model that takes the same numbers, or one that the bundle quantises",
            )
        return np.asarray(real_values(array, self._inputs[name]), numpy_dtype(dtype))


def _real(outputs: Mapping[str, Array], specs: Mapping[str, Any]) -> Outputs:
    return {name: real_values(outputs[name], specs[name]) for name in outputs}


def read_data(bundle: Bundle, data: Path, task: str) -> Task:
    """Read which items a data set has; InputError if it does not fit the bundle."""
    if task not in TASKS:
        raise UsageError(
            f"there is no task {task!r}",
            hint=did_you_mean(task, TASKS, f"the tasks are {', '.join(TASKS)}"),
        )
    return TASKS[task](bundle, data)


@dataclass(frozen=True)
class EvaluationPlan:
    """What a bundle is judged by."""

    data: Path
    """The data set with its labels."""
    task: str
    at_least: Mapping[str, float] = field(default_factory=dict)
    """The lower limits of figures, `{"top1": 0.7}`."""
    at_most: Mapping[str, float] = field(default_factory=dict)
    """The upper limits."""
    again: bool = False
    """Whether to begin anew instead of going on with what an interrupted evaluation left."""


def evaluate(
    bundle: Bundle,
    device: RunsBundles,
    plan: EvaluationPlan,
    *,
    source: ModelSource | None = None,
    events: Events = SILENT,
    purpose: str | None = None,
    store: str | None = None,
) -> EvaluationReport:
    """Run each sample of a data set on the device, and compare the outputs with the labels.

    `source` is a model that runs on the same samples in its own runtime. A report whose figures
    miss a limit is returned too: `raise_if_missed` makes it an error. With a `purpose`, the figures
    are kept in the store.
    """
    data, task = plan.data, plan.task
    chosen = read_data(bundle, data, task)
    alike, likeness = chosen.likeness
    figures = {**chosen.figures, **({alike: likeness} if source else {})}
    limits = limits_of(plan.at_least, plan.at_most, figures)
    model = None if source is None else _Model(bundle, source)
    of_model = "" if model is None else model.source.sha256
    subject = (bundle.digest, device.name, task, str(data.resolve()), of_model)
    identities = [item.identity() for item in chosen.items]
    with (
        journal(subject, again=plan.again, events=events) as earlier,
        device.opened(bundle, purpose="evaluate", events=events) as session,
        events.stage(f"evaluate on {device.name}", len(identities)) as stage,
    ):
        open_items = [
            (item, identity)
            for item, identity in zip(chosen.items, identities, strict=True)
            if identity not in earlier.done
        ]
        resumed = len(identities) - len(open_items)
        if resumed:
            stage.advance(resumed, "resumed")
        under_way: deque[tuple[Item, str, Mapping[str, Array]]] = deque()

        def inputs() -> Iterator[Mapping[str, Array]]:
            samples = chosen.samples([item for item, _ in open_items])
            for (item, identity), sample in zip(open_items, samples, strict=True):
                under_way.append((item, identity, sample.inputs))
                yield sample.inputs

        specs = {entry.spec.name: entry.spec for entry in bundle.manifest.outputs}
        state = CarriedState(bundle, kept=False)
        with contextlib.closing(run_in_order(session, inputs(), state)) as results:
            for result in results:
                item, identity, taken = under_way.popleft()
                outputs = _real(result.outputs, specs)
                known = {"judged": chosen.judge(item, outputs), "seconds": result.seconds}
                if model is not None:
                    expected = model.run(state.complete(taken))
                    known["model"] = chosen.judge(item, expected)
                    known["alike"] = chosen.compare(outputs, expected)
                earlier.add(identity, known)
                stage.advance(1, item.name)
        measured_by = session.measured_by
        found = [earlier.done[identity] for identity in identities]
    values = chosen.summarise([one["judged"] for one in found])
    beside = chosen.summarise([one["model"] for one in found]) if model else {}
    metrics = [
        Metric(name, figure, values[name], beside.get(name))
        for name, figure in chosen.figures.items()
    ]
    if model is not None:
        metrics.append(Metric(alike, likeness, float(np.mean([one["alike"] for one in found]))))
    report = EvaluationReport(
        bundle=bundle.path,
        board=bundle.manifest.board.name,
        device=device.name,
        measured_by=measured_by,
        task=task,
        data=data,
        samples=len(found),
        resumed=resumed,
        seconds=median(one["seconds"] for one in found),
        model=None if model is None else model.name,
        metrics=tuple(metrics),
        limits=limits,
    )
    if purpose is None:
        return report
    return replace(report, kept_as=keep_evaluation(bundle, report, purpose, store, events))
