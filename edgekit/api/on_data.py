"""The methods of a workspace that run data sets on devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.api.building import Building
from edgekit.api.choice import (
    DeviceKeywords,
    EvaluateKeywords,
    MlperfKeywords,
    device_for_bundle,
)
from edgekit.api.keywords import (
    BundleLike,
    LimitKeywords,
    LoadgenKeywords,
    PathLike,
    Unpack,
    without,
)
from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.base.own_folder import own_folder

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.profiles.board import Board
    from edgekit.verbs.evaluation.report import EvaluationReport, TaskName
    from edgekit.verbs.mlperf.messages import Scenario
    from edgekit.verbs.mlperf.report import MlperfReport


class OnData(Building):
    """A workspace's methods that judge a model by a data set."""

    def evaluate(
        self,
        bundle: BundleLike,
        data: PathLike,
        task: TaskName,
        *,
        board: str | Board | None = None,
        model: PathLike | None = None,
        **how: Unpack[EvaluateKeywords],
    ) -> EvaluationReport:
        """Run a data set on a device, and compare the outputs with its labels.

        `bundle` may be a model file, which is built for `board` first. `model` runs on the same
        samples in its own runtime: what the bundle was built from, or the float model of a
        quantised one. An interrupted evaluation goes on where it stopped.
        """
        from edgekit.verbs.evaluation.evaluate import EvaluationPlan, evaluate

        where = without(how, LimitKeywords)
        opened = self._built(bundle, board, where)
        with self._setting.working():
            return evaluate(
                opened,
                device_for_bundle(self._setting, opened, **where),
                EvaluationPlan(self.data.path(data), task, **without(how, DeviceKeywords)),
                source=None if model is None else self._source(model, {}),
                events=self._setting.events,
                purpose="evaluate",
                store=self.data.store,
            )

    def mlperf(
        self,
        bundle: BundleLike,
        data: PathLike,
        task: TaskName,
        scenario: Scenario,
        *,
        board: str | Board | None = None,
        **how: Unpack[MlperfKeywords],
    ) -> MlperfReport:
        """Run MLPerf's LoadGen with a device as the system under test.

        `bundle` may be a model file, which is built for `board` first. A report whose result
        LoadGen calls invalid is returned too: look at `performance.valid`.
        """
        from edgekit.verbs.mlperf.mlperf import MlperfPlan, run_mlperf

        where = without(how, LoadgenKeywords)
        given: dict[str, Any] = without(how, DeviceKeywords)
        opened = self._built(bundle, board, where)
        with self._setting.working():
            out = given.pop("out", None)
            folder = (
                own_folder(self.data.start, f"{opened.manifest.model.name}-mlperf", opened.path)
                if out is None
                else self.data.path(out)
            )
            plan = MlperfPlan(self.data.path(data), task, scenario, folder, **given)
            device = device_for_bundle(self._setting, opened, **where)
            return run_mlperf(opened, device, plan, self._setting.events)

    def _built(
        self, bundle: BundleLike, board: str | Board | None, where: Mapping[str, Any]
    ) -> Bundle:
        """Open a bundle, or build a model file for a board."""
        from edgekit.bundle.folder import Bundle, looks_like_a_bundle

        if not isinstance(bundle, Bundle) and not looks_like_a_bundle(self.data.path(bundle)):
            bundle = self.build(bundle, board=board, **where)
        elif board is not None:
            raise UsageError(
                f"a bundle is built for its board, and {option('board')} names one",
                hint="leave it out, or name a model file",
            )
        with self._setting.working():
            return self._setting.bundle(bundle)
