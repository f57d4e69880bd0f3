"""Checks what this host needs to build for a board, and how to install what is missing.

TVM is not imported: a child process tests whether it loads.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from edgekit.backends.registry import load_backend
from edgekit.base.children import TimeoutExpired, run, statement_command
from edgekit.base.errors import MissingToolError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import free_space
from edgekit.base.limits import limit_named_in, look_at_limits
from edgekit.base.own_backends import own_backends
from edgekit.base.paths import cache_dir
from edgekit.base.tvm_compat import PINNED, installed_version
from edgekit.base.wording import size
from edgekit.building.prebuild import libraries_for
from edgekit.building.products import product_of
from edgekit.cross.sources.steps import TOOLS as LIBRARY_TOOLS
from edgekit.cross.toolchain import Compiler, find_tool, older, version_in, which
from edgekit.cross.tools import disk_full
from edgekit.devices.engine.device import how_to_install, is_installed
from edgekit.profiles.architecture import architectures
from edgekit.profiles.board import Board, toolchain_of
from edgekit.profiles.toolchain import Toolchain, apt_command, pip_command
from edgekit.twin.tools import TO_BUILD, to_run
from edgekit.twin.tools import find_tool as find_twin_tool

_PROBE_SECONDS = 300
_C_PROGRAM = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\nfloat f(float x);\n"
_CXX_PROGRAM = "#include <cmath>\n#include <cstdint>\nfloat f(float x) { return x; }\n"
_SPACE_NEEDED = 1 << 30


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    purpose: str
    required: bool
    ok: bool
    found: str
    """The version, path or size that was found, or what is wrong."""
    expected: str
    fix: str | None
    """The command that installs it, or other instructions."""


@dataclass(frozen=True)
class DoctorReport:
    board: str
    toolchain: str
    checks: tuple[Check, ...]
    ready: bool
    """Whether models can be built for the board."""


@dataclass(frozen=True)
class _Package:
    """An optional Python package, as in the extras of pyproject.toml."""

    name: str
    relation: str
    version: str
    purpose: str

    @property
    def requirement(self) -> str:
        return f"{self.name}{self.relation}{self.version}"


OPTIONAL_PACKAGES = (
    _Package("onnx", ">=", "1.17", "read ONNX models"),
    _Package("onnxruntime", ">=", "1.19", "prove ONNX models right"),
    _Package("protobuf", ">=", "4.25", "read ONNX models"),
    _Package("tflite", "==", "2.18.0", "read TFLite models"),
    _Package("ai-edge-litert", ">=", "2.0", "prove TFLite models right"),
    _Package("flatbuffers", ">=", "24", "prove TFLite models right"),
    _Package("torch", ">=", "2.8", "read PyTorch models, and prove them right"),
    _Package("onnx-ir", ">=", "1.0", "read PyTorch models"),
    _Package("onnxscript", ">=", "0.7", "read PyTorch models"),
    _Package("pillow", ">=", "10.3", "take images as inputs"),
)
_DEBIAN_PACKAGE_OF = {
    "gdb-multiarch": "gdb-multiarch",
    **{
        known.qemu.system: known.qemu.package
        for known in architectures().values()
        if known.qemu.system
    },
}


def examine(board: Board, events: Events = SILENT) -> DoctorReport:
    """Check everything that building for a board needs."""
    toolchain = toolchain_of(board)
    with events.stage("check this host"):
        checks = (
            _python(),
            *_tvm(),
            *_compilers(board, toolchain),
            *_binutils(toolchain),
            *_sysroot(toolchain),
            _cache(),
            *(_optional_package(package) for package in OPTIONAL_PACKAGES),
            *_twin(board),
            *_flash(board),
            *_engines(board),
            *_needs(board),
            *_gpu(board),
            *_gpu_libraries(board),
            *_libraries(board),
            *_limits(),
        )
        checks = tuple(map(_with_real_cause, checks))
    ready = all(check.ok for check in checks if check.required)
    return DoctorReport(board.name, toolchain.name, checks, ready)


def _python() -> Check:
    found = ".".join(str(number) for number in sys.version_info[:3])
    return Check(
        name="Python",
        purpose="run edgekit",
        required=True,
        ok=(3, 10) <= sys.version_info[:2] <= (3, 13),
        found=found,
        expected="3.10 to 3.13",
        fix="install edgekit into an environment of one of these versions",
    )


def _tvm() -> Iterable[Check]:
    fix = pip_command(*(f"{name}=={wanted}" for name, wanted in PINNED))
    exact = True
    for name, wanted in PINNED:
        found = installed_version(name)
        exact = exact and found == wanted
        yield Check(
            name,
            "compile models",
            required=True,
            ok=found == wanted,
            found=found or "not installed",
            expected=f"exactly {wanted}",
            fix=fix,
        )
    if exact:
        # Without freeze(), Python searches all of TVM for garbage when the process ends.
        trouble = _trouble_loading(
            "import gc; from edgekit.base.tvm_compat import load_tvm; load_tvm(); gc.freeze()"
        )
        yield Check(
            "TVM's libraries",
            "compile models",
            required=True,
            ok=trouble is None,
            found=trouble or "they load",
            expected="libraries that load",
            fix=f"{fix} --force-reinstall",
        )


def _trouble_loading(statement: str) -> str | None:
    """Return why a statement fails in a new Python process, None if it works."""
    return _trouble_running(statement_command(statement))


def _trouble_running(command: Sequence[str]) -> str | None:
    """Return why a command fails, None if it works."""
    try:
        child = run(command, limit_s=_PROBE_SECONDS)
    except TimeoutExpired:
        return f"no end after {_PROBE_SECONDS} s"
    if child.status == 0:
        return None
    if child.status < 0:
        return f"it was killed by signal {-child.status}"
    lines = child.errors.strip().splitlines()
    # The exhausted resource is at the end of a line, after a path that may be long.
    causes = (line[-200:] for line in lines if disk_full(line) or limit_named_in(line) is not None)
    errors = (line for line in lines if "error:" in line)
    line = next(chain(causes, errors, reversed(lines)), "")
    return line[:200] or f"exit code {child.status}"


def _compilers(board: Board, toolchain: Toolchain) -> Iterable[Check]:
    probes = [(toolchain.tools.cc, "c", _C_PROGRAM, "compile C")]
    if board.has_os and not board.in_engine:  # what is built for others is C
        probes.append((toolchain.tools.cxx, "c++", _CXX_PROGRAM, "compile C++ and link"))
    for tool, language, program, purpose in probes:
        try:
            compiler = find_tool(toolchain, tool)
            trouble = _trouble_compiling(board, toolchain, compiler, language, program)
            found, ok = trouble or compiler.version, trouble is None
        except MissingToolError as error:
            found, ok = "not installed" if which(tool) is None else error.message, False
        yield Check(
            tool,
            purpose,
            required=True,
            ok=ok,
            found=found,
            expected=f"{toolchain.minimum_version} or newer, with its libraries",
            fix=toolchain.install.command(),
        )


def _trouble_compiling(
    board: Board, toolchain: Toolchain, compiler: Compiler, language: str, program: str
) -> str | None:
    """Return why the compiler can't build a small program for this board, None if it can."""
    sysroot = [f"--sysroot={toolchain.sysroot}"] if toolchain.sysroot else []
    cpu = toolchain.spelled(board.cpu.compile_flags)
    flags = [*sysroot, *toolchain.compile_flags, *cpu, *product_of(board).probe_flags]
    with tempfile.TemporaryDirectory(prefix="edgekit-doctor-") as folder:
        source, output = Path(folder, "probe"), Path(folder, "probe.out")
        source.write_text(program, encoding="utf-8")
        command = [*compiler.command, *flags, "-x", language, str(source), "-o", str(output)]
        return _trouble_running(command)


def _binutils(toolchain: Toolchain) -> Iterable[Check]:
    tools = toolchain.tools
    for tool, purpose in (
        (tools.ar, "make static libraries"),
        (tools.strip, "make files smaller"),
        (tools.objcopy, "make firmware images"),
        (tools.gdb, "flash and debug"),
    ):
        if tool is not None:
            package = _DEBIAN_PACKAGE_OF.get(tool)
            fix = apt_command((package,)) if package else toolchain.install.command()
            yield _program(tool, purpose, fix)


def _sysroot(toolchain: Toolchain) -> Iterable[Check]:
    if toolchain.sysroot is not None:
        exists = Path(toolchain.sysroot).is_dir()
        yield Check(
            "sysroot",
            "link against the board's own libraries",
            required=True,
            ok=exists,
            found=toolchain.sysroot if exists else f"no folder {toolchain.sysroot}",
            expected="a folder",
            fix=toolchain.install.notes,
        )


def _cache() -> Check:
    """Check the free space of the cache folder, or of the folder that will hold it."""
    folder = cache_dir()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = free_space(existing)
    return Check(
        "disk space",
        "keep builds",
        required=False,
        ok=free >= _SPACE_NEEDED,
        found=f"{size(free)} in {folder}",
        expected=f"{size(_SPACE_NEEDED)} free",
        fix="`edgekit cache prune`, or set EDGEKIT_CACHE_DIR to a folder with more room",
    )


def _optional_package(package: _Package) -> Check:
    found = installed_version(package.name)
    number = version_in(found) if found else None
    if number is None:
        ok = False
    elif package.relation == "==":
        ok = number == package.version
    else:
        ok = not older(number, package.version)
    return Check(
        package.name,
        package.purpose,
        required=False,
        ok=ok,
        found=found or "not installed",
        expected=f"exactly {package.version}"
        if package.relation == "=="
        else f"{package.version} or newer",
        fix=pip_command(package.requirement),
    )


def _twin(board: Board) -> Iterable[Check]:
    if board.twin is None:
        return
    emulator = board.twin.emulator
    if not board.has_os:
        fix = apt_command((_DEBIAN_PACKAGE_OF[emulator],))
        yield _program(emulator, "stand in for the board", fix)
        return
    running = to_run(board.cpu.arch)
    for tools, purpose in ((running, "start the board's twin"), (TO_BUILD, "build twins' image")):
        for tool in tools:
            yield _program(tool.name, purpose, apt_command((tool.package,)), find_twin_tool)


def _flash(board: Board) -> Iterable[Check]:
    """Check the flash tool of a microcontroller; gdb, for emulated ones, is in the toolchain."""
    driver = None if board.flash is None else board.flash.driver
    if driver == "openocd":
        yield _program(driver, "write to the board", apt_command((driver,)))
    elif driver in ("pyocd", "stm32loader"):
        yield _program(driver, "write to the board", pip_command(driver))


def _engines(board: Board) -> Iterable[Check]:
    for engine in board.transport.engines:
        found = is_installed(engine)
        yield Check(
            name=engine,
            purpose="run models of the board on this machine",
            required=False,
            ok=found,
            found="it is installed" if found else "not installed",
            expected="any version",
            fix=how_to_install(engine),
        )


def _needs(board: Board) -> Iterable[Check]:
    """Check the packages that only the board's product needs."""
    for need in product_of(board).needs:
        found = need.find()
        yield Check(
            need.name,
            need.purpose,
            required=True,
            ok=bool(found),
            found=found or "not installed",
            expected=need.expected,
            fix=need.fix,
        )


@dataclass(frozen=True)
class _Kernels:
    """How to look for a GPU on this host, for the kernels of a language."""

    name: str
    module: str
    """The module whose `in_words` tells the GPU."""
    expected: str
    fix: str


_KERNELS = {
    "opencl": _Kernels(
        "OpenCL",
        "opencl",
        "a device with OpenCL 1.2",
        f"install the GPU's driver; {apt_command(('pocl-opencl-icd', 'ocl-icd-libopencl1'))} "
        "runs kernels on the CPU",
    ),
    "cuda": _Kernels(
        "GPU of NVIDIA's",
        "cuda",
        "a GPU from Turing on, with the driver of CUDA 13",
        "install NVIDIA's driver 580 or newer; nvidia-smi shows what it finds",
    ),
}


def _gpu(board: Board) -> Iterable[Check]:
    """Check whether this host runs the kernels of a board that is this host. Drivers may crash."""
    if board.target.gpu is None or not board.is_host:
        return
    kernels = _KERNELS[board.target.gpu.language]
    statement = f"from edgekit.devices.local.{kernels.module} import in_words; print(in_words())"
    child = run(statement_command(statement), limit_s=_PROBE_SECONDS)
    found = child.output.strip() if child.status == 0 else ""
    yield Check(
        kernels.name,
        "run models on the GPU",
        required=False,
        ok=bool(found),
        found=found or "no device",
        expected=kernels.expected,
        fix=kernels.fix,
    )
    if board.target.gpu.language == "cuda":
        version = installed_version("nvidia-ml-py")
        yield Check(
            "nvidia-ml-py",
            "read the GPU's power, temperature and clocks while a model is measured",
            required=False,
            ok=version is not None,
            found=version or "not installed",
            expected="any version",
            fix=pip_command("edgekit[nvml]"),
        )


def _gpu_libraries(board: Board) -> Iterable[Check]:
    """Check what backends on the GPU of this host need to be built, and to be loaded."""
    own = own_backends()
    on_gpu = [name for name in board.offload.allowed if name in own and own[name].tensors == "gpu"]
    for name in on_gpu if board.is_host else ():
        backend = load_backend(name)
        try:
            library = backend.library(board, toolchain_of(board), SILENT)
        except MissingToolError as error:
            found, fix, expected = error.message, error.hint, "its headers"
        else:
            load = "import ctypes; ctypes.CDLL({!r})".format
            needs = () if library is None else library.needs
            missing = [need for need in needs if _trouble_loading(load(need))]
            found = f"no {', '.join(missing)}" if missing else ""
            fix, expected = f"install {backend.title}, or add its folder to LD_LIBRARY_PATH", "it"
        yield Check(
            backend.title,
            "run regions of models",
            required=False,
            ok=not found,
            found=found or "its headers and libraries",
            expected=expected,
            fix=fix,
        )


def _libraries(board: Board) -> Iterable[Check]:
    """Check the build tools of the libraries that the board may offload to."""
    recipes = [recipe.name for recipe in libraries_for(board) if recipe.cmake is not None]
    for tool, package in LIBRARY_TOOLS if recipes else ():
        fix = f"{pip_command(tool)}, or {apt_command((package,))}"
        yield _program(tool, f"build {', '.join(recipes)} for the board", fix)


def _limits() -> Iterable[Check]:
    for limit in look_at_limits():
        yield Check(
            limit.name,
            "load libraries and run compilers",
            required=False,
            ok=limit.ok,
            found=limit.found,
            expected=f"{limit.needed} or more",
            fix=limit.raise_it,
        )


def _with_real_cause(check: Check) -> Check:
    """Replace the fix if a low limit or a full disk makes an installed program fail."""
    if check.ok or not check.required:
        return check
    low = [limit.raise_it for limit in look_at_limits() if not limit.ok]
    limit_hit = limit_named_in(check.found)
    if disk_full(check.found):
        return replace(check, fix=f"free some space in {tempfile.gettempdir()}")
    if low:
        return replace(check, fix=f"{' and '.join(low)}, then run edgekit doctor again")
    return check if limit_hit is None else replace(check, fix=limit_hit.hint)


def _program(
    tool: str, purpose: str, fix: str, find: Callable[[str], Path | None] = which
) -> Check:
    path = find(tool)
    return Check(
        tool,
        purpose,
        required=False,
        ok=path is not None,
        found=str(path) if path else "not installed",
        expected="a program on PATH",
        fix=fix,
    )
