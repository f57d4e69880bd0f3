"""Compares a device's outputs with those of an oracle for the same model and inputs."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import InputError, UsageError, VerificationError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.report import Report, nanoseconds_of
from edgekit.base.wording import counted
from edgekit.bundle.manifest_vectors import LeftOut
from edgekit.devices.carried import CarriedState
from edgekit.models.comparison import (
    Leeway,
    TensorComparison,
    Tolerance,
    Unit,
    Widening,
    WorstElement,
    compare,
    error_in_words,
    tolerance_for,
)

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.samples import Sample
    from edgekit.devices.base import RunsBundles, Session
    from edgekit.models.model import ModelSource


@dataclass(frozen=True)
class SampleReport:
    name: str
    """The name of the reference vector or of the sample's file."""
    passed: bool
    seconds: float
    """Seconds of the inference on the device."""
    tensors: tuple[TensorComparison, ...]
    """Comparisons of this sample; empty if it is the only one: see the report's `outputs`."""


@dataclass(frozen=True)
class OutputReport:
    """The comparison of one output over all samples."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    tolerance: Tolerance
    passed: bool
    max_error: float
    unit: Unit
    largest: float
    """The largest finite magnitude that the oracle gives."""
    elements: int
    out_of_tolerance: int
    worst: WorstElement | None
    worst_sample: str
    top1_agreement: float | None
    """The share of samples with the oracle's first class; None if there are no classes."""
    mismatch: str | None

    def error_in_words(self) -> str:
        return error_in_words(self.max_error, self.unit)


@dataclass(frozen=True)
class VerifyReport(Report):
    bundle: Path
    board: str
    device: str
    measured_by: Measurer
    """What the samples' times come from; only hardware's are the board's own."""
    oracle: str
    """The oracle's name and version."""
    reference: bool
    """True for the vectors inside the bundle, False for the user's own inputs."""
    passed: bool
    outputs: tuple[OutputReport, ...]
    samples: tuple[SampleReport, ...]
    left_out: tuple[LeftOut, ...] = ()
    """Reference vectors that the bundle lacks, with reasons."""

    def named(self, sample: str) -> str:
        """Return the name of a sample for a sentence."""
        return f"the reference vector {sample!r}" if self.reference else sample

    def headline(self) -> str:
        worst = max(self.outputs, key=lambda output: output.max_error)
        verdict = "verified" if self.passed else "not the same numbers"
        kind = "reference vector" if self.reference else "sample"
        count = counted(len(self.samples), kind)
        error = f"max error {worst.error_in_words()}"
        return f"{verdict}: {self.device} against {self.oracle}, {count}, {error}"

    @property
    def nanoseconds(self) -> Array:
        """The duration of each inference in whole nanoseconds, to be plotted."""
        return nanoseconds_of(sample.seconds for sample in self.samples)


@dataclass(frozen=True)
class _Expected:
    """Samples and their expected outputs."""

    oracle: str
    samples: Iterator[_Judged]


@dataclass(frozen=True)
class _Judged:
    sample: Sample
    outputs: Mapping[str, Array]
    leeways: Mapping[str, Leeway]


def verify(
    bundle: Bundle,
    device: RunsBundles,
    *,
    samples: Iterable[Sample] | None = None,
    source: ModelSource | None = None,
    widening: Widening | None = None,
    total: int | None = None,
    events: Events = SILENT,
) -> VerifyReport:
    """Run the bundle's vectors on the device and compare the outputs.

    For `samples`, the oracle computes the expected outputs from `source`, the bundle's model.
    The report holds a failure too; `raise_if_failed` makes it an error.
    """
    expected = _from_bundle(bundle) if samples is None else _from_oracle(bundle, samples, source)
    specs = [entry.spec for entry in bundle.manifest.outputs]
    vectors = bundle.manifest.vectors
    reports: list[SampleReport] = []
    title = f"compare {device.name} with {expected.oracle}"
    with (
        device.opened(bundle, purpose="verify", events=events) as session,
        events.stage(title, len(vectors) if samples is None else total) as stage,
    ):
        for wanted, given, seconds in _run(session, expected):
            tolerances = {
                spec.name: tolerance_for(spec, widening, wanted.leeways.get(spec.name))
                for spec in specs
            }
            compared = compare(wanted.outputs, given, specs, tolerances)
            name = wanted.sample.name
            reports.append(SampleReport(name, compared.passed, seconds, compared.tensors))
            stage.advance(1, name)
        if not reports:
            raise InputError("there are no samples to verify with", hint="name at least one file")
        passed = all(report.passed for report in reports)
        stage.result = "passed" if passed else "failed"
        measured_by = session.measured_by
    _warn_of_empty_proof(reports, events)
    return VerifyReport(
        bundle=bundle.path,
        board=bundle.manifest.board.name,
        device=device.name,
        measured_by=measured_by,
        oracle=expected.oracle,
        reference=samples is None,
        passed=passed,
        outputs=tuple(_over_samples(reports, i) for i in range(len(specs))),
        samples=tuple(reports) if len(reports) > 1 else (replace(reports[0], tensors=()),),
        left_out=bundle.manifest.left_out if samples is None else (),
    )


def raise_if_failed(report: VerifyReport) -> None:
    """Raise VerificationError if the report says that the numbers differ."""
    failed = [output for output in report.outputs if not output.passed]
    if not failed:
        return
    names = ", ".join(repr(output.name) for output in failed)
    raise VerificationError(
        f"what {report.device} computes for {names} is not what {report.oracle} computes",
        hint=f"widen with {option('rtol')}, {option('atol')} or {option('steps')} if such a "
        "difference is fine for this model; "
        "otherwise please report it with the model",
        details=tuple(
            difference_in_words(output, report.named(output.worst_sample)) for output in failed
        ),
    )


def difference_in_words(output: OutputReport | TensorComparison, sample: str) -> str:
    """Say how far an output is off, and where in the named sample most."""
    if output.mismatch is not None:
        return f"{output.name}: {output.mismatch}"
    off = (
        f"{output.name}: {output.out_of_tolerance:,} of {counted(output.elements, 'element')} are "
        f"off by more than {output.tolerance}{_why(output.tolerance.leeway, output.elements)}"
    )
    if output.worst is None:
        return off
    worst = output.worst
    return (
        f"{off}; worst at {list(worst.index)} of {sample}: expected "
        f"{worst.expected!r}, got {worst.actual!r}"
    )


def _why(leeway: Leeway | None, elements: int) -> str:
    if leeway is None:
        return ""
    return f" ({leeway.reason}; {counted(leeway.elements(elements), 'element')} may use that)"


def _from_bundle(bundle: Bundle) -> _Expected:
    from edgekit.bundle.samples import Sample

    oracle = bundle.oracle

    def judged() -> Iterator[_Judged]:
        for vector in bundle.vectors():
            yield _Judged(Sample(vector.name, vector.inputs), vector.outputs, vector.leeways)

    return _Expected(f"{oracle.name} {oracle.version}", judged())


def _from_oracle(
    bundle: Bundle, samples: Iterable[Sample], source: ModelSource | None
) -> _Expected:
    from edgekit.models.model import as_built, held
    from edgekit.models.oracle import oracle_for
    from edgekit.models.oracle_ends import with_ends

    if source is None:
        raise UsageError(
            "your own inputs need the model, to compute what must come out",
            hint=f"add {option('model')} with the file that the bundle was built from",
        )
    source = as_built(
        source, bundle.manifest.model.sha256, [entry.spec for entry in bundle.manifest.inputs]
    )
    if source.sha256 != bundle.manifest.model.sha256:
        raise UsageError(
            f"{source.path} is not the model that the bundle {bundle.path} was built from",
            hint=f"give that model, with the same {option('shape')} and {option('constant')}, or "
            "build a new bundle",
        )
    with held(source):
        ends = (
            [entry.spec for entry in bundle.manifest.inputs],
            [entry.spec for entry in bundle.manifest.outputs],
        )
        oracle = with_ends(oracle_for(source), source, ends)

    def expect() -> Iterator[_Judged]:
        state = CarriedState(bundle)
        with held(source):
            for sample in samples:
                inputs = state.complete(sample.inputs)
                outputs = oracle.run(inputs)
                state.keep(outputs)
                whole = replace(sample, inputs=inputs)
                yield _Judged(whole, outputs, oracle.leeways(inputs, outputs))

    return _Expected(f"{oracle.name} {oracle.version}", expect())


def _run(
    session: Session, expected: _Expected
) -> Iterator[tuple[_Judged, Mapping[str, Array], float]]:
    """Run one sample after another, so that only one is in memory."""
    under_way: deque[_Judged] = deque()

    def inputs() -> Iterator[Mapping[str, Array]]:
        for judged in expected.samples:
            under_way.append(judged)
            yield judged.sample.inputs

    with contextlib.closing(session.run_all(inputs())) as results:
        for result in results:
            yield under_way.popleft(), result.outputs, result.seconds


def _warn_of_empty_proof(reports: list[SampleReport], events: Events) -> None:
    for position, first in enumerate(reports[0].tensors):
        if first.elements and all(r.tensors[position].largest == 0.0 for r in reports):
            events.warn(
                f"the oracle gives only zeros or NaN for the output {first.name!r}: "
                f"agreement on that proves little; try your own inputs with {option('input')}"
            )


def _over_samples(reports: list[SampleReport], position: int) -> OutputReport:
    compared = [(report.name, report.tensors[position]) for report in reports]
    sample, worst = max(compared, key=lambda pair: (not pair[1].passed, pair[1].max_error))
    tensors = [tensor for _, tensor in compared]
    votes = [tensor.top1_agrees for tensor in tensors if tensor.top1_agrees is not None]
    return OutputReport(
        name=worst.name,
        dtype=worst.dtype,
        shape=worst.shape,
        tolerance=worst.tolerance,
        passed=all(tensor.passed for tensor in tensors),
        max_error=worst.max_error,
        unit=worst.unit,
        largest=max(tensor.largest for tensor in tensors),
        elements=sum(tensor.elements for tensor in tensors),
        out_of_tolerance=sum(tensor.out_of_tolerance for tensor in tensors),
        worst=worst.worst,
        worst_sample=sample,
        top1_agreement=sum(votes) / len(votes) if votes else None,
        mismatch=worst.mismatch,
    )
