"""An int8 network on small cores: each output is LiteRT's, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.needs import MICROCONTROLLERS, needs
from support.tflite_models import Op, T, constant, tflite_bytes
from support.twins import edgekit_json, twins_in

pytestmark = needs(*MICROCONTROLLERS)

RANDOM = np.random.default_rng(17)
CHANNELS = 7
"""A group of four, a group of two, and one that is left."""


def _weights(name: str, *shape: int) -> T:
    return constant(name, RANDOM.integers(-127, 128, shape).astype("int8"), scale=0.01)


def _biases(name: str, count: int, scale: float) -> T:
    return constant(name, RANDOM.integers(-2000, 2000, count).astype("int32"), scale=scale)


def network() -> bytes:
    """Floats, and between them every kind of layer of the MLPerf Tiny networks, in odd sizes."""
    tensors = [
        T("image", (1, 9, 7, 3)),
        T("stored", (1, 9, 7, 3), "int8", scale=0.02, zero=3),
        _weights("w1", CHANNELS, 3, 3, 3),
        _biases("b1", CHANNELS, 0.0002),
        T("convolved", (), "int8", scale=0.05, zero=-128),
        _weights("w2", 1, 3, 3, CHANNELS),
        _biases("b2", CHANNELS, 0.0005),
        T("by_channel", (), "int8", scale=0.06, zero=-4),
        _weights("w3", CHANNELS, 1, 1, CHANNELS),
        _biases("b3", CHANNELS, 0.0006),
        T("mixed", (), "int8", scale=0.07, zero=5),
        T("added", (), "int8", scale=0.08, zero=11),
        T("pooled", (), "int8", scale=0.08, zero=11),
        constant("shape", np.array([1, CHANNELS], "int32")),
        T("flat", (1, CHANNELS), "int8", scale=0.08, zero=11),
        _weights("w4", 5, CHANNELS),
        _biases("b4", 5, 0.0008),
        T("logits", (), "int8", scale=0.09, zero=-7),
        T("answer", (1, 5)),
    ]
    window = {"padding": 0, "strideH": 1, "strideW": 1}
    pool = {"filterHeight": 9, "filterWidth": 7, "padding": 1, "strideH": 9, "strideW": 7}
    plain = {"table": "Conv2DOptions", **window}
    nodes = [
        Op("QUANTIZE", ("image",), ("stored",)),
        Op(
            "CONV_2D",
            ("stored", "w1", "b1"),
            ("convolved",),
            {**plain, "fusedActivationFunction": 1},
        ),
        Op(
            "DEPTHWISE_CONV_2D",
            ("convolved", "w2", "b2"),
            ("by_channel",),
            {"table": "DepthwiseConv2DOptions", **window, "depthMultiplier": 1},
        ),
        Op("CONV_2D", ("by_channel", "w3", "b3"), ("mixed",), plain),
        Op("ADD", ("convolved", "mixed"), ("added",), {"table": "AddOptions"}),
        Op("AVERAGE_POOL_2D", ("added",), ("pooled",), {"table": "Pool2DOptions", **pool}),
        Op("RESHAPE", ("pooled", "shape"), ("flat",), {"table": "ReshapeOptions"}),
        Op(
            "FULLY_CONNECTED", ("flat", "w4", "b4"), ("logits",), {"table": "FullyConnectedOptions"}
        ),
        Op("DEQUANTIZE", ("logits",), ("answer",)),
    ]
    return tflite_bytes(tensors, nodes, ["image"], ["answer"])


@pytest.mark.parametrize("board", ["microbit", "mps2-an385", "mps2-an505", "qemu-riscv32"])
def test_a_small_core_computes_what_litert_computes(board: str, tmp_path: Path) -> None:
    """QEMU's Cortex-M0 faults where a word is read from an odd address."""
    model = tmp_path / "odd.tflite"
    model.write_bytes(network())
    with twins_in(tmp_path / "cache"):
        words = ("deploy", str(model), "--board", board, "--twin", "-o", str(tmp_path / "out"))
        report = edgekit_json(*words)

    assert report["verification"]["passed"] is True
    assert [output["max_error"] for output in report["verification"]["outputs"]] == [0.0]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    makers = {step["maker"] for step in manifest["bare_metal"]["steps"]}
    assert "edgekit dsp" in makers if board == "mps2-an505" else makers == {"edgekit"}
