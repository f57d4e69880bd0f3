"""Writes a bundle as a folder that an application engineer can start from."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from edgekit.agent.build import INTERFACE
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import copy_tree, replace_directory, storage_errors
from edgekit.base.own_folder import own_folder, remember_origin
from edgekit.base.paths import PACKAGE
from edgekit.base.wording import counted
from edgekit.bundle.archive import write_zip
from edgekit.bundle.folder import LIBRARY_NAME, Bundle
from edgekit.bundle.manifest import Manifest
from edgekit.cross.cmake import toolchain_file
from edgekit.cross.library_code import is_program
from edgekit.devices.elf import read_elf
from edgekit.profiles.architecture import architecture
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.toolchain import Toolchain, load_toolchain
from edgekit.verbs.export.ends_source import ends_source
from edgekit.verbs.export.model_header import model_header
from edgekit.verbs.export.record import RECORD, Record, check_destination, sums_of, write_record
from edgekit.verbs.export.template import TEMPLATE, filled, program_name
from edgekit.verbs.export.web import check_sizes, write_page
from edgekit.verbs.export.wrappers import module_name, write_wrappers
from edgekit.version import __version__

_AGENT = PACKAGE / "agent" / "src"
_REFERENCE = ("reference-input", "reference-output")

_GPU = """
# The GPU and its drivers, and a place that stays for what is built for it.
PrivateDevices=no
SupplementaryGroups=video
MemoryDenyWriteExecute=no
CacheDirectory=PROGRAM
Environment=EDGEKIT_TENSORRT_CACHE=/var/cache/PROGRAM
"""
"""Settings of the service that a vendor's library needs; later lines win."""


@dataclass(frozen=True)
class ExportResult:
    path: Path
    program: str
    """The name of the program, its unit and its folder on the board."""
    board: str
    toolchain: str | None
    """The toolchain that compiles the application; None if nothing is left to compile."""
    model: int
    """The bytes of the model's libraries."""
    wrappers: Mapping[str, int]
    """The bytes of the source for each language that calls the model."""
    files: int
    archive: Path | None

    @property
    def total(self) -> int:
        """The bytes of the model and of the wrappers."""
        return self.model + sum(self.wrappers.values())


def export(
    bundle: Bundle,
    out: Path,
    *,
    archive: bool = False,
    folder: Path | None = None,
    events: Events = SILENT,
) -> ExportResult:
    """Write the folder `out`. With `archive`, also write `out`.zip.

    The profiles of the bundle's board may be those of a workspace's `folder`.

    An existing export at `out` is replaced in one step, unless it was changed.
    """
    manifest = bundle.manifest
    board = load_board(manifest.board.name, folder)
    toolchain = load_toolchain(manifest.toolchain.name, folder)
    assert bundle.oracle  # the application's test compares with expected outputs
    in_engine = manifest.board.in_engine
    if in_engine:
        check_sizes(bundle)
    else:
        _check_form(bundle)
        _check_architecture(bundle, toolchain)
    check_destination(out)
    program = program_name(manifest.model.name)
    with ExitStack() as replacing, events.stage("write the application") as stage:
        with storage_errors("write the application", out):
            made = replacing.enter_context(replace_directory(out))
            if in_engine:
                wrappers: Mapping[str, int] = {"JavaScript": write_page(made, bundle, program)}
                bundle.copy_file(bundle.library.name, made / bundle.library.name)
            else:
                _write_sources(made, manifest, program)
                _write_build_files(made, bundle, board, toolchain, program)
                wrappers = write_wrappers(made, bundle, architecture(toolchain.triple))
                _copy_binaries(made, bundle)
            _copy_samples(made, bundle)
            sums = sums_of(made)
            names = (manifest.model.name, board.name, toolchain.name, bundle.digest)
            write_record(made, Record(__version__, *names, sums))
            replacing.close()
            remember_origin(out, bundle.path)
        stage.result = counted(len(sums), "file")
    zipped = out.resolve().with_name(out.resolve().name + ".zip")
    if archive:
        write_zip(out, (*sums, RECORD), zipped)
    return ExportResult(
        path=out,
        program=program,
        board=board.name,
        toolchain=None if in_engine else toolchain.name,
        model=sum(f.size for f in manifest.files if f.role not in _REFERENCE),
        wrappers=wrappers,
        files=len(sums),
        archive=zipped if archive else None,
    )


def default_destination(bundle: Bundle, start: Path) -> Path:
    """Return the folder for an application in the folder `start`; never that of another bundle."""
    manifest = bundle.manifest
    name = f"{program_name(manifest.model.name)}-{manifest.board.name}-app"
    return own_folder(start, name, bundle.path)


def _check_form(bundle: Bundle) -> None:
    if not is_program(bundle.library):
        raise UsageError(
            "the bundle's model needs TVM's runtime: it branches on data, or an older edgekit "
            "built it",
            hint="build it again; edgekit deploy runs both kinds",
        )


def _check_architecture(bundle: Bundle, toolchain: Toolchain) -> None:
    arch = read_elf(bundle.library).machine
    made = architecture(toolchain.triple)
    if made != arch:
        raise UsageError(
            f"the bundle's library is for {arch}, "
            f"and {toolchain.name} makes code for {made} on this host",
            hint="export it on the host that built it, or build it for a board of this host",
        )


def _write_sources(folder: Path, manifest: Manifest, program: str) -> None:
    source = folder / "src"
    copy_tree(TEMPLATE / "src", source)
    for shared in (*(_AGENT / name for name in ("tensor.h", "npy.h", "npy.cc")), INTERFACE):
        shutil.copyfile(shared, source / shared.name)
    (source / "model.h").write_text(model_header(manifest, program), encoding="ascii")
    (source / "ends.c").write_text(ends_source(manifest), encoding="ascii")


def _write_build_files(
    folder: Path, bundle: Bundle, board: Board, toolchain: Toolchain, program: str
) -> None:
    values = {
        "program": program,
        "module": module_name(program),
        "board": board.name,
        "title": f"{program} on {board.name}",
        "memory": f"{board.memory.ram >> 20}M",
        "compiler": toolchain.tools.cxx.split()[0],
        "install_toolchain": _how_to_get(toolchain),
        "samples": " ".join(f"sample/input-{i}.npy" for i in range(len(bundle.manifest.inputs))),
        "gpu": _GPU.replace("PROGRAM", program) if bundle.manifest.runners else "",
        "request": _how_to_ask(bundle, program),
        "version": __version__,
    }
    for template, name in (
        ("CMakeLists.txt", "CMakeLists.txt"),
        ("service.in", f"{program}.service.in"),
        ("README.md", "README.md"),
    ):
        (folder / name).write_text(filled(template, values), encoding="utf-8")
    settings = toolchain_file(
        toolchain, toolchain.spelled(board.cpu.compile_flags), host_paths=False
    )
    (folder / "toolchain.cmake").write_text(settings, encoding="utf-8")


def _how_to_get(toolchain: Toolchain) -> str:
    packages = " ".join((*toolchain.install.debian, "cmake"))
    pip = "".join(f" && pip install {package}" for package in toolchain.install.pip)
    return f"sudo apt-get install {packages}{pip}"


def _how_to_ask(bundle: Bundle, program: str) -> str:
    """Return shell lines that pass the sample to the service, the first input last."""
    count = len(bundle.manifest.inputs)
    inbox = f"/run/{program}/in"
    if count == 1:
        return f"sudo cp sample/input-0.npy {inbox}/.a && sudo mv {inbox}/.a {inbox}/a.npy"
    others = [f"sudo cp sample/input-{i}.npy {inbox}/a.input-{i}.npy" for i in range(1, count)]
    last = f"sudo cp sample/input-0.npy {inbox}/.a && sudo mv {inbox}/.a {inbox}/a.input-0.npy"
    return "\n".join([*others, last])


def _copy_binaries(folder: Path, bundle: Bundle) -> None:
    libraries = folder / "lib"
    libraries.mkdir()
    for file in bundle.code:
        target = libraries / (LIBRARY_NAME if file.role == "library" else file.path)
        if file.role == "runner-source":
            target = folder / file.path
            target.parent.mkdir(exist_ok=True)
        bundle.copy_file(file.path, target)


def _copy_samples(folder: Path, bundle: Bundle) -> None:
    """Copy every vector into a folder of its own, the usual one into `sample` itself."""
    for k, vector in enumerate(bundle.manifest.vectors):
        sample = folder / "sample" / vector.name if k else folder / "sample"
        sample.mkdir()
        for i, path in enumerate(vector.inputs):
            bundle.copy_file(path, sample / f"input-{i}.npy")
        for i, expected in enumerate(vector.outputs):
            bundle.copy_file(expected.file, sample / f"expected-{i}.npy")
