"""Makes the reference inputs, and their expected outputs by an oracle that is not TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import BuildError
from edgekit.base.events import Events
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.wording import counted
from edgekit.bundle.folder import Vector, describe_file, write_tensor
from edgekit.bundle.manifest import FileEntry
from edgekit.bundle.manifest_oracle import OracleEntry
from edgekit.bundle.manifest_vectors import RANDOM, ExpectedEntry, LeftOut, VectorEntry
from edgekit.models.model import ModelSource, held
from edgekit.models.states import first_state

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec
    from edgekit.building.reference_vectors import Edges
    from edgekit.models.oracle_types import Oracle

    Ends = tuple[Sequence[TensorSpec], Sequence[TensorSpec]]
    """A model's inputs and its outputs."""


@dataclass(frozen=True)
class Expectation:
    oracle: OracleEntry | None
    """The oracle; None if nothing is verified: then there is one vector, without outputs."""
    vectors: tuple[Vector, ...]
    """All vectors, the usual one first."""
    left_out: tuple[LeftOut, ...] = ()

    @property
    def usual(self) -> Vector:
        return self.vectors[0]

    def without(self, name: str, reason: str) -> Expectation:
        """Return the same without the vector of that name; unchanged if there is none."""
        others = tuple(vector for vector in self.vectors if vector.name != name)
        if len(others) == len(self.vectors):
            return self
        return replace(self, vectors=others, left_out=(*self.left_out, LeftOut(name, reason)))


@dataclass(frozen=True)
class Reference:
    """The manifest's entries for the vectors in a bundle."""

    vectors: tuple[VectorEntry, ...]
    files: tuple[FileEntry, ...]


def expect(
    source: ModelSource,
    seed: int,
    ends: Ends,
    events: Events,
    edges: Edges,
    *,
    verified: bool = True,
) -> Expectation:
    """Make the reference inputs, and let the oracle compute their outputs.

    Without `verified`, make only the usual inputs and run no oracle.
    """
    # numpy's C modules may lose the exception of Ctrl-C while they are imported.
    with interrupts_deferred():
        from edgekit.building.reference_vectors import further_vectors
        from edgekit.models.inputs import reference_inputs
        from edgekit.models.oracle import oracle_for
        from edgekit.models.oracle_ends import with_ends

    specs, results = ends
    usual_inputs = reference_inputs(specs, seed, edges.index_ranges)
    inputs = {**usual_inputs, **first_state(source, specs)}
    if not verified:
        events.warn("no expected outputs are computed: nothing is proven of this bundle's numbers")
        return Expectation(None, (Vector(RANDOM, inputs, {}, {}),))
    with events.stage("compute the expected outputs") as stage, held(source):
        oracle = with_ends(oracle_for(source), source, ends)
        outputs = oracle.run(inputs)
        entry = OracleEntry(oracle.name, oracle.version)
        for spec in results:
            _check_agreement(spec, outputs.get(spec.name), oracle)
        usual = Vector(RANDOM, inputs, outputs, oracle.leeways(inputs, outputs))
        further = further_vectors(source, oracle, ends, usual, seed, edges)
        vectors = (usual, *further.vectors)
        stage.result = f"by {entry.name} {entry.version} for {counted(len(vectors), 'vector')}"
    return Expectation(entry, vectors, further.left_out)


def write_reference(folder: Path, ends: Ends, expectation: Expectation) -> Reference:
    """Write the vectors into a bundle's folder for them."""
    files: list[FileEntry] = []
    vectors = []
    for vector in expectation.vectors:
        place = f"reference/{vector.name}"
        inputs, outputs = [], []
        for i, spec in enumerate(ends[0]):
            inputs.append(f"{place}/input-{i}.npy")
            write_tensor(folder / inputs[-1], vector.inputs[spec.name])
            files.append(describe_file(folder, inputs[-1], "reference-input"))
        for i, spec in enumerate(ends[1] if expectation.oracle else ()):
            path = f"{place}/output-{i}.npy"
            write_tensor(folder / path, vector.outputs[spec.name])
            files.append(describe_file(folder, path, "reference-output"))
            outputs.append(ExpectedEntry(path, vector.leeways.get(spec.name)))
        vectors.append(VectorEntry(vector.name, tuple(inputs), tuple(outputs)))
    return Reference(tuple(vectors), tuple(files))


def _check_agreement(spec: TensorSpec, array: Array | None, oracle: Oracle) -> None:
    found = "no such output" if array is None else f"{array.dtype.name}{list(array.shape)}"
    expected = str(spec)
    if array is None or array.dtype.name != spec.dtype or not spec.admits(array.shape):
        raise BuildError(
            f"edgekit takes the output {spec.name!r} for {expected}, {oracle.name} gives {found}",
            hint="this is an error in edgekit's importer: please report it with the model",
        )
