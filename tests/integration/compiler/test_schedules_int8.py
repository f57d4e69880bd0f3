"""int8 kernels of every shape and instruction set give LiteRT's numbers, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.deployed import run_deployed
from support.examples import examples
from support.int8_layers import LAYERS, Case, layer, numbers
from support.tflite_models import write_model

from edgekit.backends.offloading import compile_model
from edgekit.models.model import ModelSource, import_model
from edgekit.models.oracle import oracle_for
from edgekit.profiles.architecture import architectures
from edgekit.profiles.cpu import Target, this_cpu

LEVELS = {
    "alderlake": "AVX-VNNI",
    "skylake-avx512": "AVX-512 without dot products",
    "haswell": "AVX2",
    "sandybridge": "AVX",
    "x86-64": "SSE2",
}
"""CPUs whose best instruction for int8 differs; the one that runs the tests comes besides."""


def targets() -> list[Target | None]:
    cpu, mine = this_cpu()
    if cpu.arch != "x86_64":
        return [None]
    has, known = set(cpu.features), architectures()[cpu.arch]
    runs = [name for name in LEVELS if set(known.instructions(name)) <= has]
    return [None, *(replace(mine, cpu=name, features=()) for name in runs)]


TARGETS = targets()


CHANNELS = st.one_of(st.integers(1, 20), st.sampled_from([32, 33, 48, 64, 100, 130]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["conv", "conv", "depthwise", "dense"]))
    channels = draw(CHANNELS)
    outputs = channels * draw(st.integers(1, 3)) if kind == "depthwise" else draw(CHANNELS)
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)]))
    return Case(
        kind,
        channels,
        outputs,
        size=draw(st.tuples(st.integers(1, 15), st.integers(1, 15))),
        kernel=draw(st.tuples(st.integers(1, 5), st.integers(1, 5))),
        strides=strides if dilations == (1, 1) else (1, 1),
        dilations=dilations,
        batch=draw(st.integers(1, 3)),
        same=True,
        zero=draw(st.integers(-128, 127)),
        activation=draw(st.sampled_from([0, 1, 3])),
        extreme=draw(st.booleans()),
        target=draw(st.sampled_from(TARGETS)),
    )


def check(case: Case, folder: Path) -> tuple[tuple[str, str], ...]:
    source = write_model(folder, layer(case))
    x = numbers(np.random.default_rng(5), case.input_shape, case.extreme)
    found, rules = run(source, x, case.target)
    np.testing.assert_array_equal(found, oracle_for(source).run({"x": x})["r"])
    return rules


def run(
    source: ModelSource, x: np.ndarray, target: Target | None
) -> tuple[np.ndarray, tuple[tuple[str, str], ...]]:
    used = target or this_cpu()[1]
    compiled = compile_model(import_model(source), used)
    (found,) = run_deployed(compiled, [x], target=used)
    return found, compiled.rules


@settings(max_examples=examples(40), deadline=None)
@given(case=cases())
def test_any_layer_gives_the_numbers_of_litert(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(case, tmp_path_factory.mktemp("layer"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu if target else "this")
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: f"{case.kind}-{case.channels}")
def test_each_instruction_set_gives_the_same_numbers(
    case: Case, target: Target | None, tmp_path: Path
) -> None:
    rules = check(replace(case, target=target), tmp_path)
    wanted = "depthwise" if case.kind == "depthwise" else "int8"
    assert wanted in dict(rules).values()


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_work_is_shared_without_another_result(cores: int, tmp_path: Path) -> None:
    mine = this_cpu()[1]
    case = Case("conv", 64, 96, (28, 28), (3, 3), target=replace(mine, cores=cores))
    check(case, tmp_path)
