"""Writes and reads `manifest.json`, which describes a bundle. It is not trusted when read.

The text has one form only (key order, spacing, digest of everything else): equal builds write equal
bytes, and any changed byte is noticed. docs/bundle.md describes every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from edgekit.base.decode import Check, Count, DecodeError, Sha256, decode, encode
from edgekit.base.errors import BundleError
from edgekit.base.files import sha256_bytes
from edgekit.base.json_reader import JsonError, read_json_object
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.manifest_bare_metal import BareMetal
from edgekit.bundle.manifest_oracle import OracleEntry
from edgekit.bundle.manifest_runners import RunnerEntry, runners_problem
from edgekit.bundle.manifest_steps import Arena, LibraryStep
from edgekit.bundle.manifest_vectors import RANDOM, LeftOut, VectorEntry, vectors_problem
from edgekit.models.ends.postprocess import Postprocess
from edgekit.models.preprocess import Preprocess
from edgekit.profiles.kinds import HasKind

SCHEMA_VERSION = 7
"""The schema version. Since 7 a program may hold what stands before and behind its model."""
_MODEL_ALONE = 6
_ONE_VECTOR = 5
"""Older schema versions, which are read too: before 6 a bundle had one reference vector."""
MANIFEST_NAME = "manifest.json"
MANIFEST_LIMIT = 16 << 20
"""The most bytes of a manifest, far above any real one, so that none fills the memory."""

FileRole = Literal[
    "library",
    "shared-library",
    "runner-source",
    "c-tree",
    "firmware",
    "memory-map",
    "package",
    "reference-input",
    "reference-output",
]

AGAIN = "build the bundle again, or get it again from the person who built it"


@dataclass(frozen=True)
class _Target:
    """The parts of TVM's target that edgekit uses."""

    kind: str = ""
    mcpu: str = ""
    mtriple: str = ""
    mattr: tuple[str, ...] = ()
    host: _Target | None = None


def _is_target(text: str) -> bool:
    try:
        decode(_Target, read_json_object(text), ignore_unknown=True)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class ModelEntry:
    """The model of a bundle; `sha256` is that of the model source (file, shapes, …)."""

    name: str
    format: str
    sha256: Sha256
    file: str


@dataclass(frozen=True)
class BoardEntry(HasKind):
    name: str
    kind: str


@dataclass(frozen=True)
class ToolchainEntry:
    name: str
    compiler: str
    """The first line of the compiler's --version."""


@dataclass(frozen=True)
class Versions:
    tvm: str
    tvm_ffi: str


@dataclass(frozen=True)
class InputEntry:
    spec: TensorSpec
    preprocess: Preprocess | None


@dataclass(frozen=True)
class OutputEntry:
    spec: TensorSpec


@dataclass(frozen=True)
class Region:
    """Operators that a backend runs together, and the reason."""

    name: str
    backend: str
    operators: tuple[str, ...]
    macs: Count
    """Multiply-accumulates."""
    model_macs: Count
    """Multiply-accumulates of the whole model."""
    reason: str
    bytes: Count = 0
    """Bytes of the region's own data in the library: weights, or a model of another format."""
    place: str = ""
    """Where it computes, in words, if that is not the CPU alone."""


@dataclass(frozen=True)
class Kernel:
    """A function of the library, and the rule of docs/schedules.md that gave its schedule."""

    name: str
    rule: str
    choice: str = ""
    """The measured choice in words; empty if the rule's own choice stands."""


@dataclass(frozen=True)
class FileEntry:
    path: str
    sha256: Sha256
    size: Count
    role: FileRole


@dataclass(frozen=True)
class Manifest:
    schema_version: int
    edgekit_version: str
    model: ModelEntry
    board: BoardEntry
    target: Annotated[str, Check("a target of TVM as JSON", _is_target)]
    """TVM's target, as JSON text."""
    toolchain: ToolchainEntry
    versions: Versions
    oracle: OracleEntry | None
    seed: int
    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    postprocess: Postprocess | None
    """What the outputs mean; None if the project says nothing about them."""
    vectors: tuple[VectorEntry, ...]
    """The reference vectors, at least one. The first, usual one has seeded random inputs."""
    left_out: tuple[LeftOut, ...]
    regions: tuple[Region, ...]
    runners: tuple[RunnerEntry, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[LibraryStep, ...]
    """The steps in the order in which they run; none in bundles of earlier versions."""
    arena: Arena | None
    """The memory of a program in machine code; None if it is planned otherwise, or unknown."""
    bare_metal: BareMetal | None
    """The model as C; None if the bundle holds a library."""
    files: tuple[FileEntry, ...]
    reproducible: bool
    reproducible_note: str


def manifest_text(manifest: Manifest) -> str:
    """Write the manifest in its only form."""
    return _text_of(encode(manifest))


def parse_manifest(text: bytes) -> Manifest:
    """Read the manifest that `manifest_text` wrote; BundleError for any other text."""
    document = parse_json(text)
    _check_schema(document)
    document.pop("digest", None)
    if text != _text_of(document).encode():
        raise BundleError("the manifest was changed after it was written", hint=AGAIN)
    manifest = _read_manifest(document)
    _check_references(manifest)
    return manifest


def parse_json(text: bytes) -> dict[str, object]:
    """Read the JSON of a manifest of any version; BundleError for what is none."""
    try:
        return read_json_object(text)
    except JsonError as error:
        raise BundleError(f"the manifest is not readable: {error}", hint=AGAIN) from error


def _text_of(document: Mapping[str, object]) -> str:
    return _dump({**document, "digest": _digest_of(document)})


def _digest_of(document: Mapping[str, object]) -> str:
    return sha256_bytes(_dump(document).encode())


def _dump(document: Mapping[str, object]) -> str:
    try:
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"the manifest holds a value that JSON can't: {error}",
            hint="every number in it must be finite",
        ) from error


def _check_schema(document: Mapping[str, object]) -> None:
    found, writer = document.get("schema_version"), document.get("edgekit_version")
    if type(found) is not int:
        raise BundleError("the manifest has no schema version", hint=AGAIN)
    if found not in (_ONE_VECTOR, _MODEL_ALONE, SCHEMA_VERSION):
        raise BundleError(
            f"the bundle has schema version {found} (written by edgekit {ascii(writer)[:40]}); "
            f"this edgekit reads versions {_ONE_VECTOR} to {SCHEMA_VERSION}",
            hint="build the model again with this edgekit, or use the edgekit that wrote it",
        )


def _read_manifest(document: Mapping[str, object]) -> Manifest:
    try:
        if document["schema_version"] == _ONE_VECTOR:
            document = _with_vectors(document)
        if document["schema_version"] == _MODEL_ALONE:
            document = _with_ends(document)
        return decode(Manifest, _with_states(document), "the manifest", need_all=True)
    except DecodeError as error:
        raise BundleError(str(error), hint=AGAIN) from error


@dataclass(frozen=True)
class _OldInput:
    spec: object
    preprocess: object
    reference: str


@dataclass(frozen=True)
class _OldOutput:
    spec: object
    reference: str | None
    leeway: object


@dataclass(frozen=True)
class _OldTensors:
    """The inputs and outputs of schema version 5, which name the files of the only vector."""

    inputs: tuple[_OldInput, ...]
    outputs: tuple[_OldOutput, ...]


def _with_vectors(document: Mapping[str, object]) -> dict[str, object]:
    """Return a document of schema version 5 in the form of the newest."""
    tensors = {key: document[key] for key in ("inputs", "outputs") if key in document}
    old = decode(_OldTensors, tensors, "the manifest")
    files = [(output.reference, output.leeway) for output in old.outputs]
    vector = {
        "name": RANDOM,
        "inputs": [entry.reference for entry in old.inputs],
        "outputs": [{"file": file, "leeway": leeway} for file, leeway in files if file is not None],
    }
    return {
        **document,
        "schema_version": _MODEL_ALONE,
        "inputs": [{"spec": item.spec, "preprocess": item.preprocess} for item in old.inputs],
        "outputs": [{"spec": item.spec} for item in old.outputs],
        "vectors": [vector],
        "left_out": [],
    }


def _with_states(document: Mapping[str, object]) -> dict[str, object]:
    """Return a document that has every key of the newest version: where an older one says nothing,
    tensors are no state and of one size, and steps and the arena are unknown."""

    def completed(entry: object) -> object:
        if not isinstance(entry, dict) or not isinstance(entry.get("spec"), dict):
            return entry
        return {**entry, "spec": {"state": None, "varying": [], **entry["spec"]}}

    ends = {
        key: [completed(entry) for entry in entries]
        for key in ("inputs", "outputs")
        if isinstance(entries := document.get(key), list)
    }
    steps = {"steps": _known_steps(document.get("steps", []), operations=None, reads=None)}
    bare_metal = document.get("bare_metal")
    if isinstance(bare_metal, dict):
        own = _known_steps(bare_metal.get("steps"), reads=None)
        steps["bare_metal"] = {**bare_metal, "steps": own}
    return {"arena": None, **document, **ends, **steps}


def _known_steps(steps: object, **unknown: None) -> object:
    if not isinstance(steps, list):
        return steps
    return [{**unknown, **step} if isinstance(step, dict) else step for step in steps]


@dataclass(frozen=True)
class _OldEntry:
    spec: object
    preprocess: Preprocess | None


@dataclass(frozen=True)
class _OldInputs:
    """The inputs of schema version 6, whose images become tensors on the host."""

    inputs: tuple[_OldEntry, ...]


def _with_ends(document: Mapping[str, object]) -> dict[str, object]:
    """Return a document of schema version 6 in the form of the newest."""
    old = decode(_OldInputs, {"inputs": document.get("inputs", [])}, "the manifest")
    entries = [
        _OldEntry(one.spec, one.preprocess and replace(one.preprocess, on="host"))
        for one in old.inputs
    ]
    newer = {"inputs": encode(entries), "postprocess": None, "schema_version": SCHEMA_VERSION}
    return {**document, **newer}


def _check_references(manifest: Manifest) -> None:
    """Check that each file is listed once, and that every file of inputs and outputs is listed."""
    roles: dict[str, FileRole] = {}
    for file in manifest.files:
        if file.path in roles or file.path == MANIFEST_NAME:
            raise _inconsistent(f"names the file {file.path!a} twice")
        roles[file.path] = file.role
    kinds = list(roles.values())
    if kinds.count("library") != (0 if manifest.bare_metal else 1):
        raise _inconsistent("must name one library, or be of bare metal and name none")
    if kinds.count("firmware") > (1 if manifest.bare_metal else 0):
        raise _inconsistent("names a firmware that has no place in it")
    if ("c-tree" in kinds) != (manifest.bare_metal is not None):
        raise _inconsistent("must list files of C just where it is of bare metal")
    if problem := runners_problem(manifest.runners, roles):
        raise _inconsistent(problem)
    # The library looks for these in its own folder.
    if any(role == "shared-library" and "/" in path for path, role in roles.items()):
        raise _inconsistent("names a shared library that is not beside the model's")
    count = (len(manifest.inputs), len(manifest.outputs) if manifest.oracle else 0)
    if problem := vectors_problem(manifest.vectors, *count):
        raise _inconsistent(problem)
    wanted: list[tuple[str, FileRole]] = []
    for vector in manifest.vectors:
        wanted += [(path, "reference-input") for path in vector.inputs]
        wanted += [(expected.file, "reference-output") for expected in vector.outputs]
    for path, role in wanted:
        if roles.get(path) != role:
            raise _inconsistent(f"lists no {role} file {path!a}")
    for kind, names in (
        ("input", [entry.spec.name for entry in manifest.inputs]),
        ("output", [entry.spec.name for entry in manifest.outputs]),
    ):
        if len(set(names)) != len(names):
            raise _inconsistent(f"has two {kind}s of one name")
    ends = ([e.spec for e in manifest.inputs], [e.spec for e in manifest.outputs])
    tensors = {spec.name for specs in ends for spec in specs}
    for specs, least in zip(ends, (1, 0), strict=True):
        for spec in specs:
            if not spec.is_within(least) or any(one.length in tensors for one in spec.varying):
                raise _inconsistent(f"gives {spec.name[:40]!a} sizes that can't be")
    reads = [step.reads for step in manifest.steps]
    of_c = [step.reads for step in manifest.bare_metal.steps] if manifest.bare_metal else []
    if any(max(own or (), default=-1) >= at for one in (reads, of_c) for at, own in enumerate(one)):
        raise _inconsistent("has a step that reads what comes after it")
    results = {entry.spec.name: entry.spec for entry in manifest.outputs}
    for entry in manifest.inputs:
        spec = entry.spec
        result = None if spec.state is None else results.get(spec.state)
        if spec.state is not None and (
            result is None
            or (result.dtype, result.shape) != (spec.dtype, spec.shape)
            or spec.varying
            or result.varying
        ):
            raise _inconsistent(f"has no output that fits the state {spec.name[:40]!a}")


def _inconsistent(what: str) -> BundleError:
    return BundleError(f"the manifest {what}", hint=AGAIN)
