"""What a bundle says about itself: `manifest.json`, written and read without trust.

The text has one form only (key order, spacing, digest of everything else), so that two builds
of the same thing write the same bytes and a changed byte anywhere is noticed. docs/bundle.md
describes every key.
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
from edgekit.bundle.manifest_oracle import OracleEntry, read_oracle
from edgekit.bundle.manifest_reader import Reader, parse_json
from edgekit.bundle.manifest_runners import RunnerEntry, read_runner, runners_problem
from edgekit.models.comparison import Leeway
from edgekit.models.preprocess import Preprocess

SCHEMA_VERSION = 5
"""5: a bundle may hold no expected outputs."""
MANIFEST_NAME = "manifest.json"
MANIFEST_LIMIT = 16 << 20
"""Bytes. No real manifest comes near; a hostile one may not fill the memory."""

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
BufferUse = Literal["tensor", "scratch"]
BUFFER_USES: tuple[BufferUse, ...] = get_args(BufferUse)


@dataclass(frozen=True)
class ModelEntry:
    """Where the bundle came from; `sha256` is that of the model source (file, shapes, …)."""

    name: str
    format: str
    sha256: str
    file: str


@dataclass(frozen=True)
class BoardEntry:
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
    reference: str
    """The path of the reference input inside the bundle."""


@dataclass(frozen=True)
class OutputEntry:
    spec: TensorSpec
    reference: str | None
    """The path of the oracle's output inside the bundle; None where there is no oracle."""
    leeway: Leeway | None = None
    """What it may be off by beyond the rule of its type, measured when the bundle was built."""


@dataclass(frozen=True)
class Region:
    """Operators that a backend runs together, and why it got them."""

    name: str
    backend: str
    operators: tuple[str, ...]
    macs: int
    """Multiply-accumulates."""
    model_macs: int
    """Of the whole model, to compare with."""
    reason: str


@dataclass(frozen=True)
class Kernel:
    """A function of the library, and the rule of docs/schedules.md that gave its schedule."""

    name: str
    rule: str
    choice: str = ""
    """In words, what was measured to be better than the rule's own choice; empty where that
    stands."""


@dataclass(frozen=True)
class StepEntry:
    """A function of a model in C: who wrote it, why, and what it takes."""

    name: str
    layers: tuple[str, ...]
    """The model's own names for what it computes."""
    operator: str
    maker: str
    note: str
    reason: str
    """Why it computes in floats, where the model is quantised."""
    others: tuple[str, ...]
    """Who could have written it and did not: `NAME: REASON`."""
    scratch_bytes: int
    constant_bytes: int
    alive_bytes: int
    """Of the arena, while it runs."""


@dataclass(frozen=True)
class BufferEntry:
    """A place in the arena, from its first step to its last."""

    name: str
    """Of what lies there; a kernel's own memory is called after its step."""
    use: BufferUse
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class LibraryEntry:
    """A third party's sources inside the C."""

    name: str
    version: str
    license: str


@dataclass(frozen=True)
class BareMetal:
    """A model as C: what its functions begin with, and what it takes of a microcontroller."""

    name: str
    arena_bytes: int
    arena_bound: int
    """The most bytes that are alive at one step: no arena can be smaller."""
    arena_note: str
    """Why the arena is larger than that, if it is."""
    constant_bytes: int
    flash_bytes: int
    """Code and constants, as the board's compiler made them."""
    stack_bytes: int
    """The most that the model's own functions need."""
    firmware_flash: int
    """What the firmware around the model takes, its C library included; 0 where there is none."""
    firmware_ram: int
    """Beside the arena: the stack that it reserves, and its variables."""
    steps: tuple[StepEntry, ...]
    buffers: tuple[BufferEntry, ...]
    libraries: tuple[LibraryEntry, ...]


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
    """What TVM compiled for, as JSON text."""
    toolchain: ToolchainEntry
    versions: Versions
    oracle: OracleEntry | None
    seed: int
    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    regions: tuple[Region, ...]
    runners: tuple[RunnerEntry, ...]
    kernels: tuple[Kernel, ...]
    bare_metal: BareMetal | None
    """Where the bundle is C, and no library."""
    files: tuple[FileEntry, ...]
    reproducible: bool
    reproducible_note: str


def manifest_text(manifest: Manifest) -> str:
    """The one way to write this manifest."""
    return _text_of(asdict(manifest))


def parse_manifest(text: bytes) -> Manifest:
    """The manifest that `manifest_text` wrote; BundleError for any other text."""
    document = parse_json(text)
    reader = Reader(document, "the manifest")
    _check_schema(reader)
    if text != _text_of({k: v for k, v in reader.table.items() if k != "digest"}).encode():
        raise BundleError(
            "the manifest was changed after it was written",
            hint="build the bundle again, or get it again from whoever built it",
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
    if found == SCHEMA_VERSION:
        return
    writer = reader.table.get("edgekit_version")
    raise BundleError(
        f"the bundle has schema version {found} (written by edgekit {ascii(writer)[:40]}); this "
        f"edgekit reads version {SCHEMA_VERSION}",
        hint="build the model again with this edgekit, or use the edgekit that wrote the bundle",
    )


def _read_manifest(reader: Reader) -> Manifest:
    manifest = Manifest(
        schema_version=reader.integer("schema_version"),
        edgekit_version=reader.text("edgekit_version"),
        model=_read_model(reader.child("model")),
        board=_read_board(reader.child("board")),
        target=reader.target("target"),
        toolchain=_read_toolchain(reader.child("toolchain")),
        versions=_read_versions(reader.child("versions")),
        oracle=read_oracle(reader.optional_child("oracle")),
        seed=reader.integer("seed"),
        inputs=tuple(_read_input(item) for item in reader.children("inputs")),
        outputs=tuple(_read_output(item) for item in reader.children("outputs")),
        regions=tuple(_read_region(item) for item in reader.children("regions")),
        runners=tuple(read_runner(item) for item in reader.children("runners")),
        kernels=tuple(_read_kernel(item) for item in reader.children("kernels")),
        bare_metal=_read_bare_metal(reader.optional_child("bare_metal")),
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
        reference=reader.text("reference"),
    )
    reader.close()
    return entry


def _read_output(reader: Reader) -> OutputEntry:
    leeway = reader.optional_child("leeway")
    entry = OutputEntry(
        spec=_read_spec(reader.child("spec")),
        reference=reader.optional_text("reference"),
        leeway=None if leeway is None else leeway.leeway(),
    )
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


def _read_bare_metal(reader: Reader | None) -> BareMetal | None:
    if reader is None:
        return None
    entry = BareMetal(
        name=reader.text("name"),
        arena_bytes=reader.count("arena_bytes"),
        arena_bound=reader.count("arena_bound"),
        arena_note=reader.text("arena_note"),
        constant_bytes=reader.count("constant_bytes"),
        flash_bytes=reader.count("flash_bytes"),
        stack_bytes=reader.count("stack_bytes"),
        firmware_flash=reader.count("firmware_flash"),
        firmware_ram=reader.count("firmware_ram"),
        steps=tuple(_read_step(item) for item in reader.children("steps")),
        buffers=tuple(_read_buffer(item) for item in reader.children("buffers")),
        libraries=tuple(_read_library(item) for item in reader.children("libraries")),
    )
    reader.close()
    return entry


def _read_step(reader: Reader) -> StepEntry:
    entry = StepEntry(
        name=reader.text("name"),
        layers=reader.texts("layers"),
        operator=reader.text("operator"),
        maker=reader.text("maker"),
        note=reader.text("note"),
        reason=reader.text("reason"),
        others=reader.texts("others"),
        scratch_bytes=reader.count("scratch_bytes"),
        constant_bytes=reader.count("constant_bytes"),
        alive_bytes=reader.count("alive_bytes"),
    )
    reader.close()
    return entry


def _read_buffer(reader: Reader) -> BufferEntry:
    entry = BufferEntry(
        name=reader.text("name"),
        use=reader.word("use", BUFFER_USES),
        offset=reader.count("offset"),
        bytes=reader.count("bytes"),
        first=reader.count("first"),
        last=reader.count("last"),
    )
    reader.close()
    return entry


def _read_library(reader: Reader) -> LibraryEntry:
    entry = LibraryEntry(reader.text("name"), reader.text("version"), reader.text("license"))
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
    """Files named once, by one role each, and those that inputs and outputs name are there."""
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
    # The library looks for these beside itself.
    if any(role == "shared-library" and "/" in path for path, role in roles.items()):
        raise _inconsistent("names a shared library that is not beside the model's")
    wanted: list[tuple[str, FileRole]] = [(i.reference, "reference-input") for i in manifest.inputs]
    expected = [output.reference for output in manifest.outputs]
    if any((path is None) != (manifest.oracle is None) for path in expected):
        raise _inconsistent("must list expected outputs just where it names an oracle")
    wanted += [(path, "reference-output") for path in expected if path is not None]
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
        hint="build the bundle again, or get it again from whoever built it",
    )
