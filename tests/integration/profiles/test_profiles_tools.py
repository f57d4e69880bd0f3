"""What profiles say of compilers and of QEMU, told to the real ones where they are installed."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
from support.needs import needs

from edgekit.cross.toolchain import find_compiler
from edgekit.profiles.board import board_names, load_board
from edgekit.profiles.toolchain import load_toolchain

BOARDS = [name for name in board_names() if name != "local"]

# What GCC defines when it may use an instruction set of a Cortex-M.
MACROS = {
    "dsp": "__ARM_FEATURE_DSP 1",
    "fpu-single": "__ARM_FP ",
    "mve-integer": "__ARM_FEATURE_MVE ",
}
PRECISIONS = {"fpu-single": 4, "fpu-double": 8}


@lru_cache(maxsize=8)
def _qemu(emulator: str, *question: str) -> set[str]:
    answer = subprocess.run(
        [emulator, *question], capture_output=True, text=True, check=True, timeout=240
    )
    return {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}


@needs("qemu-system")
@pytest.mark.parametrize("name", BOARDS)
def test_qemu_has_the_twin(name: str) -> None:
    twin = load_board(name).twin
    assert twin is not None
    assert twin.machine in _qemu(twin.emulator, "-M", "help")
    assert twin.cpu in _qemu(twin.emulator, "-M", twin.machine, "-cpu", "help")


def _macros(name: str) -> str:
    board = load_board(name)
    toolchain = load_toolchain(board.toolchain)
    flags = [*toolchain.compile_flags, *board.cpu.compile_flags]
    return subprocess.run(
        [*find_compiler(toolchain).command, *flags, "-dM", "-E", "-x", "c", "-"],
        input="",
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout


@needs("g++-aarch64", "gcc-arm")
@pytest.mark.parametrize("name", BOARDS)
def test_the_compiler_takes_a_boards_flags(name: str) -> None:
    macros = _macros(name)
    features = load_board(name).cpu.features
    if load_board(name).cpu.arch == "aarch64":
        assert "__aarch64__ 1" in macros
        assert ("__ARM_FEATURE_DOTPROD 1" in macros) is ("asimddp" in features)
        return
    for feature, macro in MACROS.items():
        assert (macro in macros) is (feature in features), feature
    formats = next(line.split()[2] for line in macros.splitlines() if "__ARM_FP " in line)
    for feature, size in PRECISIONS.items():
        assert bool(int(formats, 0) & size) is (feature in features), feature


@needs("g++-aarch64", "gcc-arm")
def test_toolchains_make_code_for_their_triples() -> None:
    for name in ("aarch64-linux-gnu", "arm-none-eabi"):
        toolchain = load_toolchain(name)
        compiler = find_compiler(toolchain)
        answer = subprocess.run(
            [*compiler.command, "-dumpmachine"], capture_output=True, text=True, check=True
        )
        assert answer.stdout.strip() == toolchain.triple
        assert Path(compiler.path).is_file()
