"""Every operator of TFLite that Vela takes: the twin gives LiteRT's numbers, to the last bit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ethos_u_twin import differences
from support.integer_cases import CASES, Dice
from support.needs import needs
from support.tflite_models import Op, T, constant, tflite_bytes

from edgekit.backends.ethos_u.network import NotForVela
from edgekit.backends.ethos_u.stream import NotInterpreted

pytestmark = needs("ethos-u")


def _transpose(dice: Dice) -> tuple[list[T], Op]:
    x = dice.tensor("x", dice.shape(2, 4))
    order = dice.random.permutation(len(x.shape)).astype("int32")
    options = {"table": "TransposeOptions"}
    return [x, constant("p", order), dice.tensor("r", like=x)], Op(
        "TRANSPOSE", ("x", "p"), ("r",), options
    )


def _slice(dice: Dice) -> tuple[list[T], Op]:
    x = dice.tensor("x", tuple(dice.size(2, 9) for _ in range(dice.size(2, 4))))
    start = np.array([dice.size(0, extent - 1) for extent in x.shape], "int32")
    size = [dice.size(1, extent - at) for extent, at in zip(x.shape, start, strict=True)]
    given = [constant("b", start), constant("s", np.array(size, "int32"))]
    options = {"table": "SliceOptions"}
    return [x, *given, dice.tensor("r", like=x)], Op("SLICE", ("x", "b", "s"), ("r",), options)


DRAWS: dict[str, Any] = {**CASES, "TRANSPOSE": _transpose, "SLICE": _slice}
BY_ALL = (
    *("ABS", "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "EXP"),
    *("FULLY_CONNECTED", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "MEAN"),
    *("MINIMUM", "MUL", "PAD", "QUANTIZE", "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6"),
    *("RELU_N1_TO_1", "SLICE", "SQUARED_DIFFERENCE", "SUB", "TANH", "TRANSPOSE", "TRANSPOSE_CONV"),
)
BY_U85 = (
    *("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
)
ALL = [
    *((name, npu) for npu in ("ethos-u55-128", "ethos-u65-512") for name in BY_ALL),
    *((name, "ethos-u85-256") for name in (*BY_ALL, *BY_U85)),
]
FEW = [
    ("SQUARED_DIFFERENCE", "ethos-u55-128"),
    ("TRANSPOSE_CONV", "ethos-u65-512"),
    ("LESS", "ethos-u85-256"),
    ("TRANSPOSE", "ethos-u85-256"),
]


def _are_whole(tensors: list[T]) -> bool:
    """Return whether an image grows by whole factors."""
    (made,) = (t.data for t in tensors if t.data is not None)
    (given,) = (t.shape for t in tensors if t.data is None and len(t.shape) == 4)
    return all(int(big) % small == 0 for big, small in zip(made, given[1:3], strict=True))


def check(folder: Path, name: str, accelerator: str, seeds: Iterable[int]) -> None:
    computed = 0
    for seed in seeds:
        dice = Dice(seed * 1000 + len(name))
        tensors, operator = DRAWS[name](dice)
        if name.startswith("REDUCE") and not operator.options["keepDims"]:
            continue  # Vela 5.2 reads beyond the rows of an axis that is dropped.
        by_corner = name == "RESIZE_NEAREST_NEIGHBOR" and len(operator.options) == 1
        if by_corner and not _are_whole(tensors):
            continue  # Vela takes the pixel at the centre, and LiteRT the first.
        given = [t for t in tensors if t.data is None and t.name not in operator.outputs]
        feeds = {tensor.name: dice.stored(tensor.shape) for tensor in given}
        content = tflite_bytes(tensors, [operator], list(feeds), operator.outputs)
        place = folder / str(seed)
        place.mkdir()
        try:
            off = differences(content, feeds, accelerator, name == "FULLY_CONNECTED", place)
        except NotForVela:
            continue
        assert off == 0, f"seed {seed}: by up to {off}"
        computed += 1
    assert computed, "Vela takes none of these"


@pytest.mark.parametrize(("name", "accelerator"), FEW)
def test_an_operator(tmp_path: Path, name: str, accelerator: str) -> None:
    check(tmp_path, name, accelerator, range(1, 3))


@pytest.mark.operators
@pytest.mark.parametrize(("name", "accelerator"), ALL)
def test_every_operator_that_vela_takes(tmp_path: Path, name: str, accelerator: str) -> None:
    check(tmp_path, name, accelerator, range(6))


@pytest.mark.operators
@pytest.mark.parametrize(
    ("name", "accelerator"), [("SOFTMAX", "ethos-u55-128"), ("ARG_MAX", "ethos-u85-256")]
)
def test_what_the_twin_refuses(tmp_path: Path, name: str, accelerator: str) -> None:
    with pytest.raises(NotInterpreted):
        check(tmp_path, name, accelerator, range(3))
