"""3x3 convolutions after Winograd give what onnxruntime gives, whatever their size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.compiling import check_against_onnxruntime, compiled_from, random_array, results_of
from support.emulated_arm import build_and_run
from support.examples import examples
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import onnx_model

from edgekit.profiles.cpu import Target, this_cpu


@dataclass(frozen=True)
class Case:
    channels: int = 32
    outputs: int = 64
    size: tuple[int, int] = (16, 20)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    batch: int = 1
    residual: bool = False
    cores: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.channels, *self.size)

    @property
    def target(self) -> Target:
        return replace(this_cpu()[1], cores=self.cores)


def network(case: Case) -> onnx.ModelProto:
    """Behind another convolution: that of a network's own input may be another kernel."""
    before = random_array((case.channels, case.channels, 1, 1), 1) * case.channels**-0.5
    kernel = random_array((case.outputs, case.channels, 3, 3), 2) / (3 * case.channels**0.5)
    weights = {"before": before, "w": kernel, "b": random_array((case.outputs,), 3)}
    nodes = [
        helper.make_node("Conv", ["x", "before"], ["d"]),
        helper.make_node("Conv", ["d", "w", "b"], ["c"], pads=case.pads),
    ]
    if case.residual:
        weights["after"] = random_array((1, case.outputs, 1, 1), 4)
        nodes += [
            helper.make_node("Relu", ["c"], ["e"]),
            helper.make_node("Add", ["e", "after"], ["y"]),
        ]
    else:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    return onnx_model(nodes, {"x": case.shape}, ["y"], weights)


def rules_of(case: Case) -> list[str]:
    model = network(case)
    feeds = {"x": random_array(case.shape)}
    compiled = check_against_onnxruntime(model, feeds, target=case.target)
    return [rule for _, rule in compiled.rules]


CHANNELS = st.sampled_from([32, 48, 64, 96])


@settings(max_examples=examples(15), deadline=None)
@given(
    case=st.builds(
        Case,
        channels=CHANNELS,
        outputs=CHANNELS,
        size=st.tuples(st.integers(3, 40), st.integers(3, 40)),
        pads=st.tuples(*[st.integers(0, 2)] * 4),
        batch=st.integers(1, 2),
        residual=st.booleans(),
        cores=st.sampled_from([1, 2, 4]),
    )
)
def test_convolutions_of_any_size_give_what_onnxruntime_gives(case: Case) -> None:
    rules_of(case)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(64, 64, (56, 56)),
        Case(128, 128, (28, 28)),
        Case(32, 32, (13, 31), pads=(0, 1, 2, 0), batch=2, residual=True),
    ],
    ids=lambda case: f"{case.channels}x{case.size[0]}",
)
def test_where_it_pays_it_is_taken(case: Case) -> None:
    assert "winograd" in rules_of(case)


@pytest.mark.parametrize(
    "case",
    [Case(outputs=65), Case(channels=16), Case(512, 512, (14, 14)), Case(size=(5, 5))],
    ids=["odd channels", "few channels", "heavy weights", "few pixels"],
)
def test_where_it_does_not_pay_it_is_not_taken(case: Case) -> None:
    assert "winograd" not in rules_of(case)


def test_the_number_of_cores_does_not_change_a_bit() -> None:
    x = random_array(Case().shape)
    one, two, four = (
        results_of(compiled_from(network(case), case.target), [x])[0]
        for case in (Case(cores=cores) for cores in (1, 2, 4))
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, four)


def test_nan_reaches_every_result_that_it_touches() -> None:
    case = Case()
    x = random_array(case.shape)
    x[0, :, 7, 9] = np.nan

    (found,) = results_of(compiled_from(network(case), case.target), [x])

    assert np.isnan(found[0, :, 6:9, 8:11]).all()
    assert np.isfinite(found[0, :, :, :4]).all()


@needs(*ARM_PROGRAMS)
def test_an_arm_cpu_gives_what_onnxruntime_gives(tmp_path: Path) -> None:
    case = Case(48, 64, (13, 31), pads=(1, 1, 2, 0), residual=True)
    model = tmp_path / "model.onnx"
    model.write_bytes(network(case).SerializeToString())

    bundle, found = build_and_run(model, "rpi4", tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert "winograd" in [kernel.rule for kernel in bundle.manifest.kernels]
