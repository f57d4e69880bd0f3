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

BOARDS = [name for name in board_names() if not load_board(name).is_host]

# What GCC defines when it may use an instruction set of a Cortex-M.
MACROS = {
    "armv6-m": "__ARM_ARCH_6M__ 1",
    "dsp": "__ARM_FEATURE_DSP 1",
    "fpu-single": "__ARM_FP ",
    "mve-integer": "__ARM_FEATURE_MVE ",
}
LINUX = {
    "aarch64": ("__aarch64__",),
    "armv7l": ("__arm__", "__ARM_NEON", "__ARM_PCS_VFP"),
    "riscv64": ("__riscv_float_abi_double", "__riscv_compressed"),
    "x86_64": ("__AVX2__", "__FMA__"),
}
EXTENSIONS = {"m": "mul", "a": "atomic", "c": "compressed", "f": "flen", "zba": "zba"}
PRECISIONS = {"fpu-single": 4, "fpu-double": 8}


@lru_cache(maxsize=8)
def _qemu(emulator: str, *question: str) -> set[str]:
    answer = subprocess.run(
        [emulator, *question], capture_output=True, text=True, check=True, timeout=240
    )
    return {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}


@needs("qemu-system", "qemu-riscv")
@pytest.mark.parametrize("name", [name for name in BOARDS if load_board(name).twin])
def test_qemu_has_the_twin(name: str) -> None:
    twin = load_board(name).twin
    assert twin is not None
    cpu, *_ = twin.cpu.split(",")
    assert twin.machine in _qemu(twin.emulator, "-M", "help")
    assert cpu in _qemu(twin.emulator, "-M", twin.machine, "-cpu", "help")


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


@needs("g++-aarch64", "g++-armhf", "g++-riscv64", "gcc-arm", "gcc-riscv32", "picolibc")
@pytest.mark.parametrize("name", BOARDS)
def test_the_compiler_takes_a_boards_flags(name: str) -> None:
    macros = _macros(name)
    features = load_board(name).cpu.features
    arch = load_board(name).cpu.arch
    if arch in LINUX:
        assert all(f"#define {macro} 1\n" in macros for macro in LINUX[arch])
        assert ("__ARM_FEATURE_DOTPROD 1" in macros) is ("asimddp" in features)
        return
    if arch == "riscv32":
        assert "#define __riscv_xlen 32\n" in macros
        for feature, word in EXTENSIONS.items():
            assert (f"#define __riscv_{word} " in macros) is (feature in features), feature
        return
    for feature, macro in MACROS.items():
        assert (macro in macros) is (feature in features), feature
    with_unit = (line.split()[2] for line in macros.splitlines() if "__ARM_FP " in line)
    formats = next(with_unit, "0")
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
