"""What edgekit believes of CPUs, compared with the LLVM inside TVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.base.tvm_compat import load_tvm
from edgekit.profiles.board import board_names, load_board
from edgekit.profiles.instruction_sets import (
    ARM_CPUS,
    ARM_FLAGS,
    ARM_OPTIONAL_FLAGS,
    LLVM_CPUS,
    LLVM_FEATURES,
    X86_CPUS,
    X86_FLAGS,
    X86_LEVELS,
    Instructions,
)

TRIPLES = {
    "aarch64": "aarch64-linux-gnu",
    "x86_64": "x86_64-linux-gnu",
    "cortex-m": "arm-none-eabi",
}
ELF_MACHINES = {"aarch64": 183, "x86_64": 62}


def _target(arch: str, cpu: str, features: tuple[str, ...] = ()) -> Any:
    tvm = load_tvm()
    config = {"kind": "llvm", "mtriple": TRIPLES[arch], "mcpu": cpu}
    return tvm.target.Target({**config, "mattr": list(features)} if features else config)


def _features(arch: str, cpu: str, features: tuple[str, ...] = ()) -> set[str]:
    from tvm.target import codegen

    target = _target(arch, cpu, features)
    return {str(feature) for feature in codegen.llvm_get_cpu_features(target)}


def _flags(llvm_features: set[str], table: dict[str, Instructions]) -> set[str]:
    return {flag for flag, instructions in table.items() if instructions.llvm in llvm_features}


@pytest.mark.parametrize("arch", TRIPLES)
def test_llvm_knows_every_cpu_that_a_profile_may_name(arch: str) -> None:
    from tvm.target import codegen

    known = {str(name) for name in codegen.llvm_get_cpu_archlist(_target(arch, "generic"))}
    assert set(LLVM_CPUS[arch]) <= known


@pytest.mark.parametrize("cpu", [*X86_CPUS, *X86_LEVELS])
def test_an_x86_name_stands_for_what_llvm_takes_it_for(cpu: str) -> None:
    expected = {**X86_CPUS, **X86_LEVELS}[cpu]
    assert _flags(_features("x86_64", cpu), dict(X86_FLAGS)) == set(expected)


@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_an_arm_name_stands_for_what_llvm_takes_it_for(cpu: str) -> None:
    expected = {*ARM_CPUS[cpu], *ARM_OPTIONAL_FLAGS}
    assert _flags(_features("aarch64", cpu), dict(ARM_FLAGS)) == expected


@pytest.mark.parametrize(
    ("arch", "baseline", "table"),
    [("x86_64", "x86-64", X86_FLAGS), ("aarch64", "generic", ARM_FLAGS)],
)
def test_a_feature_switches_on_what_it_needs_and_nothing_else(
    arch: str, baseline: str, table: dict[str, Instructions]
) -> None:
    def needed(flag: str) -> set[str]:
        return {flag}.union(*(needed(need) for need in table[flag].needs))

    before = _flags(_features(arch, baseline), table)
    for flag, instructions in table.items():
        after = _flags(_features(arch, baseline, (f"+{instructions.llvm}",)), table)
        assert flag in after, f"LLVM has no {instructions.llvm}"
        assert after - before <= needed(flag)


def test_a_feature_that_is_switched_off_is_off() -> None:
    off = tuple(f"-{ARM_FLAGS[flag].llvm}" for flag in ARM_OPTIONAL_FLAGS)
    left = _flags(_features("aarch64", "cortex-a72", off), dict(ARM_FLAGS))
    assert left == set(ARM_CPUS["cortex-a72"])


@pytest.mark.parametrize("arch", LLVM_FEATURES)
def test_llvm_knows_every_feature_that_a_profile_may_name(arch: str) -> None:
    known = set().union(*(_features(arch, cpu) for cpu in LLVM_CPUS[arch]))
    assert set(LLVM_FEATURES[arch]) - known <= {"sve2", "sme"}  # those no one CPU needs
    for feature in LLVM_FEATURES[arch]:
        baseline = {"aarch64": "generic", "x86_64": "x86-64"}[arch]
        assert feature in _features(arch, baseline, (f"+{feature}",))


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
    assert header[:5] == b"\x7fELF\x02"
    assert int.from_bytes(header[18:20], "little") == ELF_MACHINES[board.cpu.arch]


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
