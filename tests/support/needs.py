"""What a test needs of the machine: the test says so by a mark, which is looked at before its
fixtures are made. Nothing else skips a test.

    pytestmark = needs("sshd")

    @needs("qemu-user", "acl-rpi4")
    def test_…

What can be installed is a row of scripts/requirements.tsv; what a machine can or can't do stands
below. A helper that uses one of them says `require("sshd")`: that fails in a test without the mark,
on machines that have everything too.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from edgekit.base.errors import BuildError

CHECKOUT = Path(__file__).resolve().parents[2]
_SETUP = CHECKOUT / "scripts" / "setup"
_TABLE = _SETUP.with_name("requirements.tsv")
PROGRAMS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit-tests"
"""Where scripts/setup puts what wants an environment or a folder of its own."""

_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
_NEEDS = re.compile(r"needs ([\w+-]+): ")
_LICENSED = (
    "NVIDIA's licence keeps it out; scripts/setup tensorrt installs the package, TENSORRT_INCLUDE "
    "names a folder of the headers"
)

CORTEX_M = ("gcc-arm", "qemu-system")
RISCV32 = ("gcc-riscv32", "picolibc", "qemu-riscv")
MICROCONTROLLERS = (*CORTEX_M, *RISCV32, "gdb")
ARM_PROGRAMS = ("g++-aarch64", "qemu-user")
TWIN = ("g++-aarch64", "qemu-system", "qemu-img", "ssh", "mke2fs", "debian-keyring", "debian")


@dataclass(frozen=True)
class Requirement:
    name: str
    is_met: Callable[[], bool]
    remedy: str
    """What a person does about it, or why nothing helps."""


class Lacking(Exception):
    """Something is not there, outside of a test."""


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark a test, a module or a parameter with what it needs."""
    for name in names:
        requirement(name)
    return pytest.mark.needs(*names)


def require(*names: str) -> None:
    """Check that the running test is marked with what a helper is about to use."""
    if _declared is None:
        if lacking := missing(names):
            raise Lacking(reason(lacking))
        return
    undeclared = [name for name in names if name not in _declared]
    assert not undeclared, f"this test has to be marked with needs{tuple(undeclared)!r}"


def import_needed(module: str) -> Any:
    """Import what a whole module of tests stands on, or skip that module."""
    if lacking := missing([module]):
        pytest.skip(reason(lacking), allow_module_level=True)
    return importlib.import_module(module)


def labgrid_path() -> str:
    """A PATH with labgrid's programs."""
    row = next(row for row in _rows() if row.name == "labgrid")
    named = os.environ.get("EDGEKIT_LABGRID", "")
    return os.pathsep.join((named, os.environ["PATH"], str(PROGRAMS / row.what / "bin")))


def missing(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if not _is_met(name)]


def reason(names: Sequence[str]) -> str:
    return "; ".join(f"needs {name}: {requirement(name).remedy}" for name in names)


@contextmanager
def whole_mirror() -> Iterator[None]:
    """Skip a test whose packages Debian's mirror can't give, because it is being synchronised."""
    try:
        yield
    except BuildError as error:
        if "being synchronised" not in error.hint:
            raise
        pytest.skip(reason(["mirror"]))


_declared: frozenset[str] | None = None
"""What the running test is marked with; None while no test runs."""


def begin(item: pytest.Item) -> None:
    """Skip the test unless the machine has what it needs."""
    global _declared
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    if lacking := missing(names):
        pytest.skip(reason(lacking))
    _declared = frozenset(names)


def end() -> None:
    global _declared
    _declared = None


def waiting(reports: Iterable[Any]) -> list[str]:
    """A line for each remedy that skipped tests waited for."""
    names: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for report in reports:
        lacking = {name: requirement(name).remedy for name in _NEEDS.findall(str(report.longrepr))}
        counts.update(set(lacking.values()))
        for name, remedy in lacking.items():
            names.setdefault(remedy, set()).add(name)
    return [
        f"{count} {'test waits' if count == 1 else 'tests wait'} for "
        f"{', '.join(sorted(names[remedy]))}: {remedy}"
        for remedy, count in counts.most_common()
    ]


@dataclass(frozen=True)
class _Row:
    name: str
    targets: str
    source: str
    what: str
    shown: str


@lru_cache(maxsize=1)
def _rows() -> tuple[_Row, ...]:
    rows = []
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, targets, source, what, shown, _ = (part for part in line.split("\t") if part)
            rows.append(_Row(name, targets, source, what, shown))
    return tuple(rows)


@lru_cache(maxsize=1)
def _known() -> dict[str, Requirement]:
    installed = (_installed(row) for row in _rows() if row.shown != "-")
    return {requirement.name: requirement for requirement in (*installed, *_abilities())}


def requirement(name: str) -> Requirement:
    assert name in _known(), f"{name} is neither in {_TABLE.name} nor in tests/support/needs.py"
    return _known()[name]


@lru_cache
def _is_met(name: str) -> bool:
    return requirement(name).is_met()


def _installed(row: _Row) -> Requirement:
    def is_met() -> bool:
        if row.source == "apt":
            return row.name not in _apt_lacks()
        if row.source == "venv":
            return shutil.which(row.shown, path=labgrid_path()) is not None
        if row.source == "folder":
            return (PROGRAMS / row.name / row.shown).is_file()
        return _has_module(row.shown.removeprefix("module:"))

    remedy = f"apt-get install {row.what}" if row.source == "apt" else "make setup"
    if row.name == "tensorrt":
        remedy = _LICENSED
    elif row.targets == row.name:
        remedy = f"it is large, so scripts/setup {row.name} installs it, not `make setup`"
    return Requirement(row.name, is_met, remedy)


@lru_cache(maxsize=1)
def _apt_lacks() -> frozenset[str]:
    """As scripts/setup sees it: one place decides what shows that a package is there."""
    done = subprocess.run([str(_SETUP), "--missing"], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


def _abilities() -> tuple[Requirement, ...]:
    return (
        Requirement("debian", _is_debian, "systems of emulated boards are made by apt-get"),
        Requirement("mirror", lambda: True, "Debian's mirror is being synchronised; try later"),
        Requirement("root", lambda: os.geteuid() == 0, "run the tests as root"),
        Requirement("x86-64", lambda: platform.machine() == "x86_64", "this is no x86-64"),
        Requirement("no-aarch64", lambda: platform.machine() != "aarch64", "this is an aarch64"),
        Requirement("mounts", _can_mount, "this machine allows no mounts in a namespace"),
        Requirement("networks", _can_network, "this machine allows no network namespace"),
        Requirement("cables", _can_lay_cables, "this machine lets nobody lay a virtual cable"),
        Requirement("large-pages", _LARGE_PAGES.is_dir, "this kernel has no large pages"),
        Requirement("no-nvidia-driver", _has_no_driver, "this machine has NVIDIA's driver"),
        Requirement("no-tensorrt", _has_no_tensorrt, "this machine has TensorRT"),
        Requirement("tensorrt-headers", lambda: "TENSORRT_INCLUDE" in os.environ, _LICENSED),
        *(_library(backend, "local") for backend in ("ncnn", "onednn", "onnxruntime")),
        *(_library(backend, "rpi4") for backend in ("ncnn", "acl", "onnxruntime")),
        _library("ncnn", "local-vulkan"),
    )


def _library(backend: str, board: str) -> Requirement:
    name = backend if board == "local" else f"{backend}-{board.removeprefix('local-')}"
    remedy = "make vulkan-tests" if name == "ncnn-vulkan" else "make libraries"
    return Requirement(name, lambda: _has_library(backend, board), remedy)


def _is_debian() -> bool:
    return all(shutil.which(program) for program in ("apt-get", "dpkg-deb", "setpriv"))


def _can_mount() -> bool:
    return _unshared("-rm", "mount", "-t", "tmpfs", "none", "/mnt")


@lru_cache(maxsize=1)
def _can_lay_cables() -> bool:
    name = f"probe{os.getpid() % 1_000_000}"
    if shutil.which("ip") is None:
        return False
    laid = subprocess.run(
        ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}x"], capture_output=True
    )
    subprocess.run(["ip", "link", "delete", name], capture_output=True)
    return laid.returncode == 0


def _can_network() -> bool:
    return _unshared("-rn", "true")


def _unshared(*words: str) -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(("unshare", *words), capture_output=True, check=False).returncode == 0


def _has_no_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return True
    return False


def _has_no_tensorrt() -> bool:
    return ctypes.util.find_library("nvinfer") is None


def _has_library(backend: str, board_name: str) -> bool:
    from edgekit.base.errors import EdgekitError
    from edgekit.building.prebuild import libraries_for
    from edgekit.cross.sources import find_library
    from edgekit.profiles.board import load_board
    from edgekit.profiles.toolchain import load_toolchain

    board = load_board(board_name)
    try:
        (recipe,) = (one for one in libraries_for(board) if one.name == backend)
        found = find_library(recipe, board, load_toolchain(board.toolchain))
    except EdgekitError:
        return False
    return found is not None
