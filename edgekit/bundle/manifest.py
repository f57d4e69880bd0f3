"""Writes and reads `manifest.json`, which describes a bundle. It is not trusted when read.

The text has one form only (key order, spacing, digest of everything else): equal builds write equal
bytes, and any changed byte is noticed. docs/bundle.md describes every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from edgekit.base.arrays import DTYPES
from edgekit.base.errors import BundleError
from edgekit.base.files import sha256_bytes
from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.bundle.manifest_bare_metal import BareMetal, read_bare_metal
from edgekit.bundle.manifest_oracle import OracleEntry, read_oracle
from edgekit.bundle.manifest_reader import Reader, parse_json
from edgekit.bundle.manifest_runners import RunnerEntry, read_runner, runners_problem
from edgekit.bundle.manifest_vectors import (
    LeftOut,
    VectorEntry,
    read_left_out,
    read_only_vector,
    read_vector,
    vectors_problem,
)
from edgekit.models.preprocess import Preprocess
from edgekit.profiles.kinds import HasKind

SCHEMA_VERSION = 6
"""The schema version. Since 6 a bundle holds several reference vectors."""
_ONE_VECTOR = 5
"""The older schema version with one reference vector, which is read too."""
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
FILE_ROLES: tuple[FileRole, ...] = get_args(FileRole)


@dataclass(frozen=True)
class ModelEntry:
    """The model of a bundle; `sha256` is that of the model source (file, shapes, …)."""

    name: str
    format: str
    sha256: str
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
    macs: int
    """Multiply-accumulates."""
    model_macs: int
    """Multiply-accumulates of the whole model."""
    reason: str


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
    sha256: str
    size: int
    role: FileRole


@dataclass(frozen=True)
class Manifest:
    schema_version: int
    edgekit_version: str
    model: ModelEntry
    board: BoardEntry
    target: str
    """TVM's target, as JSON text."""
    toolchain: ToolchainEntry
    versions: Versions
    oracle: OracleEntry | None
    seed: int
    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    vectors: tuple[VectorEntry, ...]
    """The reference vectors, at least one. The first, usual one has seeded random inputs."""
    left_out: tuple[LeftOut, ...]
    regions: tuple[Region, ...]
    runners: tuple[RunnerEntry, ...]
    kernels: tuple[Kernel, ...]
    bare_metal: BareMetal | None
    """The model as C; None if the bundle holds a library."""
    files: tuple[FileEntry, ...]
    reproducible: bool
    reproducible_note: str


def manifest_text(manifest: Manifest) -> str:
    """Write the manifest in its only form."""
    return _text_of(asdict(manifest))


def parse_manifest(text: bytes) -> Manifest:
    """Read the manifest that `manifest_text` wrote; BundleError for any other text."""
    document = parse_json(text)
    reader = Reader(document, "the manifest")
    _check_schema(reader)
    if text != _text_of({k: v for k, v in reader.table.items() if k != "digest"}).encode():
        raise BundleError(
            "the manifest was changed after it was written",
            hint="build the bundle again, or get it again from the person who built it",
        )
    manifest = _read_manifest(reader)
    _check_references(manifest)
    return manifest


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


def _check_schema(reader: Reader) -> None:
    found = reader.integer("schema_version")
    if found in (_ONE_VECTOR, SCHEMA_VERSION):
        return
    writer = reader.table.get("edgekit_version")
    raise BundleError(
        f"the bundle has schema version {found} (written by edgekit {ascii(writer)[:40]}); this "
        f"edgekit reads versions {_ONE_VECTOR} and {SCHEMA_VERSION}",
        hint="build the model again with this edgekit, or use the edgekit that wrote the bundle",
    )


def _read_manifest(reader: Reader) -> Manifest:
    has_one_vector = reader.integer("schema_version") == _ONE_VECTOR
    inputs, outputs = reader.children("inputs"), reader.children("outputs")
    if has_one_vector:
        vectors: tuple[VectorEntry, ...] = (read_only_vector(inputs, outputs),)
        left_out: tuple[LeftOut, ...] = ()
    else:
        vectors = tuple(read_vector(item) for item in reader.children("vectors"))
        left_out = tuple(read_left_out(item) for item in reader.children("left_out"))
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        edgekit_version=reader.text("edgekit_version"),
        model=_read_model(reader.child("model")),
        board=_read_board(reader.child("board")),
        target=reader.target("target"),
        toolchain=_read_toolchain(reader.child("toolchain")),
        versions=_read_versions(reader.child("versions")),
        oracle=read_oracle(reader.optional_child("oracle")),
        seed=reader.integer("seed"),
        inputs=tuple(_read_input(item) for item in inputs),
        outputs=tuple(_read_output(item) for item in outputs),
        vectors=vectors,
        left_out=left_out,
        regions=tuple(_read_region(item) for item in reader.children("regions")),
        runners=tuple(read_runner(item) for item in reader.children("runners")),
        kernels=tuple(_read_kernel(item) for item in reader.children("kernels")),
        bare_metal=read_bare_metal(reader.optional_child("bare_metal")),
        files=tuple(_read_file(item) for item in reader.children("files")),
        reproducible=reader.flag("reproducible"),
        reproducible_note=reader.text("reproducible_note"),
    )
    reader.text("digest")
    reader.close()
    return manifest


def _read_model(reader: Reader) -> ModelEntry:
    entry = ModelEntry(
        reader.text("name"), reader.text("format"), reader.sha256("sha256"), reader.text("file")
    )
    reader.close()
    return entry


def _read_board(reader: Reader) -> BoardEntry:
    entry = BoardEntry(reader.text("name"), reader.text("kind"))
    reader.close()
    return entry


def _read_toolchain(reader: Reader) -> ToolchainEntry:
    entry = ToolchainEntry(reader.text("name"), reader.text("compiler"))
    reader.close()
    return entry


def _read_versions(reader: Reader) -> Versions:
    entry = Versions(reader.text("tvm"), reader.text("tvm_ffi"))
    reader.close()
    return entry


def _read_input(reader: Reader) -> InputEntry:
    preprocess = reader.optional_child("preprocess")
    entry = InputEntry(
        spec=_read_spec(reader.child("spec")),
        preprocess=None if preprocess is None else preprocess.preprocess(),
    )
    reader.close()
    return entry


def _read_output(reader: Reader) -> OutputEntry:
    entry = OutputEntry(_read_spec(reader.child("spec")))
    reader.close()
    return entry


def _read_region(reader: Reader) -> Region:
    entry = Region(
        name=reader.text("name"),
        backend=reader.text("backend"),
        operators=reader.texts("operators"),
        macs=reader.count("macs"),
        model_macs=reader.count("model_macs"),
        reason=reader.text("reason"),
    )
    reader.close()
    return entry


def _read_kernel(reader: Reader) -> Kernel:
    entry = Kernel(reader.text("name"), reader.text("rule"), reader.text("choice"))
    reader.close()
    return entry


def _read_file(reader: Reader) -> FileEntry:
    entry = FileEntry(
        path=reader.text("path"),
        sha256=reader.sha256("sha256"),
        size=reader.count("size"),
        role=reader.word("role", FILE_ROLES),
    )
    reader.close()
    return entry


def _read_spec(reader: Reader) -> TensorSpec:
    quantization = reader.optional_child("quantization")
    spec = TensorSpec(
        name=reader.text("name"),
        dtype=reader.word("dtype", DTYPES),
        shape=reader.counts("shape"),
        quantization=None if quantization is None else _read_quantization(quantization),
    )
    reader.close()
    return spec


def _read_quantization(reader: Reader) -> Quantization:
    scales = reader.numbers("scales")
    zero_points = reader.integers("zero_points")
    if not scales or len(scales) != len(zero_points):
        reader.refuse(f"{len(scales)} scales and {len(zero_points)} zero points")
    axis = reader.optional_integer("axis")
    reader.close()
    return Quantization(scales, zero_points, axis)


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


def _inconsistent(what: str) -> BundleError:
    return BundleError(
        f"the manifest {what}",
        hint="build the bundle again, or get it again from the person who built it",
    )
