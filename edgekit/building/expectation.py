"""The reference inputs, and what somebody other than TVM says comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import BuildError, ProjectError
from edgekit.base.events import Events
from edgekit.base.interrupts import interrupts_deferred
from edgekit.bundle.folder import (
    FileEntry,
    InputEntry,
    OutputEntry,
    describe_file,
    write_tensor,
)
from edgekit.bundle.manifest_oracle import OracleEntry
from edgekit.models.model import ModelSource, held
from edgekit.models.preprocess import Preprocess

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec
    from edgekit.models.comparison import Leeway
    from edgekit.models.oracle_types import Oracle

    Ends = tuple[Sequence[TensorSpec], Sequence[TensorSpec]]
    """A model's inputs and its outputs."""


@dataclass(frozen=True)
class Expectation:
    oracle: OracleEntry | None
    """None where nothing is expected: then there are no outputs."""
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    leeways: Mapping[str, Leeway]
    """Leeway by output, where rounding inside the model calls for one."""


@dataclass(frozen=True)
class Reference:
    """What a manifest says of the vectors in a bundle."""

    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    files: tuple[FileEntry, ...]


def check_preprocess(preprocess: Mapping[str, Preprocess], inputs: Sequence[TensorSpec]) -> None:
    names = [spec.name for spec in inputs]
    for name in preprocess:
        if name not in names:
            raise ProjectError(
                f"a preprocessing is declared for {name!r}, which is no input of the model",
                hint=f"its inputs are {', '.join(names)}",
            )


def expect(
    source: ModelSource,
    seed: int,
    ends: Ends,
    events: Events,
    index_ranges: Mapping[str, tuple[int, int]],
    *,
    verified: bool = True,
) -> Expectation:
    """The reference inputs, and what the oracle computes of them. Not `verified`, no oracle is
    asked. `index_ranges` says which values inputs may have that are indices."""
    # numpy's modules in C may lose the exception that Ctrl-C is, while they are imported.
    with interrupts_deferred():
        from edgekit.models.inputs import reference_inputs
        from edgekit.models.oracle import oracle_for

    specs, results = ends
    inputs = reference_inputs(specs, seed, index_ranges)
    if not verified:
        events.warn("no expected outputs are computed: nothing is proven of this bundle's numbers")
        return Expectation(None, inputs, {}, {})
    with events.stage("compute the expected outputs") as stage, held(source):
        oracle = oracle_for(source)
        outputs = oracle.run(inputs)
        leeways = oracle.leeways(inputs, outputs)
        stage.result = f"by {oracle.name} {oracle.version}"
    for spec in results:
        _check_agreement(spec, outputs.get(spec.name), oracle)
    return Expectation(OracleEntry(oracle.name, oracle.version), inputs, outputs, leeways)


def write_reference(
    folder: Path,
    ends: Ends,
    expectation: Expectation,
    preprocess: Mapping[str, Preprocess],
) -> Reference:
    """The vectors, in a bundle's own folder for them."""
    files: list[FileEntry] = []
    inputs, outputs = [], []
    for i, spec in enumerate(ends[0]):
        name = f"reference/input-{i}.npy"
        write_tensor(folder / name, expectation.inputs[spec.name])
        files.append(describe_file(folder, name, "reference-input"))
        inputs.append(InputEntry(spec, preprocess.get(spec.name), name))
    for i, spec in enumerate(ends[1]):
        if expectation.oracle is None:
            outputs.append(OutputEntry(spec, None))
            continue
        name = f"reference/output-{i}.npy"
        write_tensor(folder / name, expectation.outputs[spec.name])
        files.append(describe_file(folder, name, "reference-output"))
        outputs.append(OutputEntry(spec, name, expectation.leeways.get(spec.name)))
    return Reference(tuple(inputs), tuple(outputs), tuple(files))


def _check_agreement(spec: TensorSpec, array: Array | None, oracle: Oracle) -> None:
    found = "no such output" if array is None else f"{array.dtype.name}{list(array.shape)}"
    expected = f"{spec.dtype}{list(spec.shape)}"
    if found != expected:
        raise BuildError(
            f"edgekit takes the output {spec.name!r} for {expected}, {oracle.name} gives {found}",
            hint="this is an error in edgekit's importer: please report it with the model",
        )
