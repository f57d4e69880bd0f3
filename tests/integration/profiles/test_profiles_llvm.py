"""What edgekit believes of CPUs, compared with the LLVM inside TVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elftools.elf.enums import ENUM_E_MACHINE

from edgekit.base.tvm_compat import load_tvm
from edgekit.profiles.architecture import architectures
from edgekit.profiles.board import board_names, load_board

KNOWN = architectures()
WITH_OS = {name: known for name, known in KNOWN.items() if known.has_os}
CPUS = [(name, cpu) for name, known in WITH_OS.items() for cpu in (*known.cpus, *known.levels)]


def _target(arch: str, cpu: str, features: tuple[str, ...] = ()) -> Any:
    tvm = load_tvm()
    config = {"kind": "llvm", "mtriple": KNOWN[arch].triple, "mcpu": cpu}
    return tvm.target.Target({**config, "mattr": list(features)} if features else config)


def _features(arch: str, cpu: str, features: tuple[str, ...] = ()) -> set[str]:
    from tvm.target import codegen

    target = _target(arch, cpu, features)
    return {str(feature) for feature in codegen.llvm_get_cpu_features(target)}


def _flags(arch: str, llvm_features: set[str]) -> set[str]:
    return {flag for flag, one in KNOWN[arch].flags.items() if one.llvm in llvm_features}


def _baseline(arch: str) -> str:
    """Return the name of the CPU with the fewest instructions."""
    return [*(KNOWN[arch].levels or KNOWN[arch].llvm.cpus)][-1]


@pytest.mark.parametrize("arch", KNOWN)
def test_llvm_knows_every_cpu_that_a_profile_may_name(arch: str) -> None:
    from tvm.target import codegen

    known = {str(name) for name in codegen.llvm_get_cpu_archlist(_target(arch, "generic"))}
    assert set(KNOWN[arch].llvm.cpus) <= known


@pytest.mark.parametrize(("arch", "cpu"), CPUS)
def test_a_name_stands_for_what_llvm_takes_it_for(arch: str, cpu: str) -> None:
    assert _flags(arch, _features(arch, cpu)) == KNOWN[arch].implied(cpu)


@pytest.mark.parametrize("arch", WITH_OS)
def test_a_feature_switches_on_what_it_needs_and_nothing_else(arch: str) -> None:
    known = KNOWN[arch]
    baseline = _baseline(arch)

    def needed(flag: str) -> set[str]:
        return {flag}.union(*(needed(need) for need in known.flags[flag].needs))

    before = _flags(arch, _features(arch, baseline))
    for flag, instructions in known.flags.items():
        after = _flags(arch, _features(arch, baseline, (f"+{instructions.llvm}",)))
        assert flag in after, f"LLVM has no {instructions.llvm}"
        assert after - before <= needed(flag)


@pytest.mark.parametrize("arch", WITH_OS)
def test_a_feature_that_is_switched_off_is_off(arch: str) -> None:
    known = KNOWN[arch]
    for cpu in known.cpus:
        off = tuple(f"-{known.flags[flag].llvm}" for flag in known.optional(cpu))
        assert _flags(arch, _features(arch, cpu, off)) == set(known.instructions(cpu))


@pytest.mark.parametrize("arch", WITH_OS)
def test_llvm_knows_every_feature_that_a_profile_may_name(arch: str) -> None:
    known = KNOWN[arch]
    for feature in known.features_of_profiles:
        assert feature in _features(arch, _baseline(arch), (f"+{feature}",))


@pytest.mark.parametrize("name", board_names())
def test_tvm_compiles_a_function_for_every_board(name: str, tmp_path: Path) -> None:
    tvm = load_tvm()
    from tvm import te

    board = load_board(name)
    a = te.placeholder((16,), name="a")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="b")
    function = te.create_prim_func([a, b]).with_attr("global_symbol", "double_it")
    target = tvm.target.Target(board.target.as_json())
    compiled = tvm.compile(tvm.IRModule({"double_it": function}), target=target)
    if board.target.kind == "c":
        assert "double_it" in compiled.mod.inspect_source()
        return
    file = tmp_path / "double_it.o"
    compiled.mod.write_to_file(str(file), "o")
    header = file.read_bytes()[:20]
    known = KNOWN[board.cpu.arch]
    if not known.elf:
        assert header[:4] == b"\0asm"
        return
    assert header[:5] == b"\x7fELF" + bytes([known.bits // 32])
    assert int.from_bytes(header[18:20], "little") == ENUM_E_MACHINE[known.elf]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rpi4", {"has_asimd": True, "has_dotprod": False}),
        ("rpi5", {"has_asimd": True, "has_dotprod": True, "has_fp16_simd": True}),
        ("jetson-orin", {"has_dotprod": True, "has_fp16_simd": True}),
        ("jetson-xavier", {"has_dotprod": False, "has_fp16_simd": True}),
        ("nrf52840-dk", {"has_dsp": True, "has_mve": False}),
        ("mps3-an547", {"has_dsp": True, "has_mve": True}),
    ],
)
def test_tvm_sees_what_a_boards_cpu_can_do(name: str, words: dict[str, bool]) -> None:
    target = load_tvm().target.Target(load_board(name).target.as_json())
    assert {word: bool(target.attrs[f"feature.{word}"]) for word in words} == words


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32", "float64"])
def test_code_for_this_machine_runs_on_this_machine(dtype: str) -> None:
    tvm = load_tvm()
    import numpy as np
    from tvm import te

    a = te.placeholder((64, 64), dtype, name="a")
    b = te.placeholder((64, 64), dtype, name="b")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="c")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "multiply")
    target = tvm.target.Target(load_board("local").target.as_json())
    compiled = tvm.compile(tvm.IRModule({"multiply": function}), target=target)
    random = np.random.default_rng(0)
    left, right = (random.integers(0, 3, (64, 64)).astype(dtype) for _ in "ab")
    out = tvm.runtime.tensor(np.zeros((64, 64), dtype))
    compiled["multiply"](tvm.runtime.tensor(left), tvm.runtime.tensor(right), out)
    # Small whole numbers: every dtype holds the sums, floats exactly, integers modulo their range.
    expected = (left.astype("int64") @ right.astype("int64").T).astype(dtype)
    assert np.array_equal(out.numpy(), expected)
