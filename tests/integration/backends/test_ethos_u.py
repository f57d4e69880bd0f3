"""Regions that Vela compiles for an Ethos-U, run by the twin, give LiteRT's numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.ethos_u import on_npu, wrong
from support.integer_cases import CASES, Dice
from support.needs import needs
from support.random_int8 import Growing
from support.tflite_models import Op, T, tflite_bytes, write_model

from benchmarks.model_zoo import MODELS, ZooModel, fetch
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import import_model, open_model

pytestmark = needs("ethos-u")

OPERATORS = {
    "CONV_2D": "Conv2D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "FULLY_CONNECTED": "FullyConnected",
    "ADD": "Add",
    "SUB": "Add",
    "MUL": "Multiply",
    "AVERAGE_POOL_2D": "AveragePool",
    "MAX_POOL_2D": "MaxPool",
    "PAD": "Pad",
    "CONCATENATION": "Concatenate",
    "TANH": "Lookup",
    "LOGISTIC": "Lookup",
    "LEAKY_RELU": "Lookup",
    "HARD_SWISH": "Lookup",
    "QUANTIZE": "Lookup",
}
"""The operators that the NPU takes, and edgekit's names of them."""
MLPERF = [
    model
    for model in MODELS
    if model.name.startswith("MLPerf Tiny") and model.name != "MLPerf Tiny anomaly_detection"
]
"""All but one: Vela rounds matrix products twice and LiteRT once, and one of its 640 shows it."""


def check_operator(folder: Path, name: str, seeds: Iterable[int]) -> None:
    """One model of an operator with random shapes, quantisations and windows, for each seed."""
    tensors: list[T] = []
    operators: list[Op] = []
    feeds: dict[str, np.ndarray] = {}
    for seed in seeds:
        dice = Dice(seed * 1000 + len(name))
        drawn, operator = CASES[name](dice)
        renamed = {tensor.name: f"s{seed}_{tensor.name}" for tensor in drawn}
        if any(len(t.shape) == 4 and t.shape[0] > 1 and t.data is None for t in drawn):
            continue  # A batch is no integer operator of edgekit's.
        for tensor in drawn:
            tensors.append(T(**{**vars(tensor), "name": renamed[tensor.name]}))
            if tensor.data is None and tensor.name not in operator.outputs:
                feeds[renamed[tensor.name]] = dice.stored(tensor.shape)
        inputs = tuple(renamed[given] for given in operator.inputs)
        outputs = tuple(renamed[given] for given in operator.outputs)
        operators.append(Op(operator.name, inputs, outputs, operator.options))
    results = [name for operator in operators for name in operator.outputs]
    source = write_model(folder, tflite_bytes(tensors, operators, list(feeds), results))

    npu = on_npu(source)

    assert OPERATORS[name] in npu.operators, npu.left
    assert not wrong(source, npu, feeds)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_at_random_shapes(tmp_path: Path, name: str) -> None:
    check_operator(tmp_path, name, range(6))


@pytest.mark.operators
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("seed", range(6, 206, 8))
def test_an_operator_at_many_random_shapes(tmp_path: Path, name: str, seed: int) -> None:
    check_operator(tmp_path, name, range(seed, seed + 8))


@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    shape=st.tuples(st.just(1), st.integers(2, 9), st.integers(2, 9), st.integers(1, 40)),
    length=st.integers(2, 9),
)
def test_random_networks(
    tmp_path: Path, data: st.DataObject, shape: tuple[int, ...], length: int
) -> None:
    network = Growing(data, shape)
    for _ in range(length):
        network.grow()
    folder = tmp_path / f"example{len(list(tmp_path.iterdir()))}"  # A library is loaded once.
    folder.mkdir()
    source = write_model(folder, network.content())

    npu = on_npu(source)

    feeds = reference_inputs(import_model(source).inputs, 3)
    assert not wrong(source, npu, feeds)


@pytest.mark.models
@pytest.mark.parametrize("model", MLPERF, ids=lambda model: model.name)
def test_mlperf_tiny(tmp_path: Path, model: ZooModel) -> None:
    path = Path(shutil.copy(fetch(model), tmp_path))
    source = open_model(path)

    npu = on_npu(source)

    assert set(npu.left) <= {"Quantize", "Softmax", "Dequantize"}
    feeds = reference_inputs(import_model(source).inputs, 7)
    assert not wrong(source, npu, feeds)
