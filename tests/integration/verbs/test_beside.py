"""Runtimes of others in processes of their own: the same numbers, and a sentence for a failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.needs import needs
from support.tflite_models import Op, T, tflite_bytes, write_model

from edgekit.base.errors import ModelError
from edgekit.models.oracle import oracle_for
from edgekit.verbs.beside.contender import started
from edgekit.verbs.beside.runtimes import Given


@pytest.fixture
def given(tmp_path: Path) -> Given:
    tensors = (T("x", (2, 3)), T("y", (2, 3)))
    source = write_model(
        tmp_path, tflite_bytes(tensors, (Op("TANH", ("x",), ("y",)),), ("x",), ("y",))
    )
    inputs = {"x": np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)}
    return Given(source.path, inputs, oracle_for(source).run(inputs), 1, tmp_path)


@pytest.mark.parametrize("name", ["litert", pytest.param("mnn", marks=needs("mnn"))])
def test_a_tflite_model_is_computed_and_timed(given: Given, name: str) -> None:
    with started(name, given) as contender:
        turn = contender.turn(0.01)
    assert contender.max_error < 1e-5
    assert turn.nanoseconds
    assert 0 < turn.median < 1


@pytest.mark.parametrize("name", ["onnxruntime", pytest.param("mnn", marks=needs("mnn"))])
def test_a_damaged_model_is_a_sentence(given: Given, name: str, tmp_path: Path) -> None:
    damaged = tmp_path / "net.onnx"
    damaged.write_bytes(b"\x08\x07" + b"\xff" * 64)
    moved = Given(damaged, given.inputs, given.outputs, 1, tmp_path)
    with pytest.raises(ModelError) as caught, started(name, moved):
        pass
    assert "\n" not in caught.value.message
    assert caught.value.hint
