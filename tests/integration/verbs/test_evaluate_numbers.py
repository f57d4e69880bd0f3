"""edgekit evaluate for keywords and regression, on bundles that were built for real."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from support.onnx_models import onnx_model

import edgekit
from edgekit.base.errors import InputError

RANDOM = np.random.default_rng(29)
SAMPLES = 64


def write_line(path: Path, inputs: int, outputs: int) -> Path:
    """A linear model: `numbers` of a vector."""
    weights = RANDOM.normal(0, 1, (inputs, outputs)).astype(np.float32)
    node = helper.make_node("MatMul", ["vector", "weights"], ["numbers"])
    onnx.save(onnx_model([node], {"vector": [1, inputs]}, ["numbers"], {"weights": weights}), path)
    return path


def outputs_of(model: Path, vectors: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(model))
    rows = [session.run(None, {"vector": vector[None]})[0][0] for vector in vectors]
    return np.array(rows, np.float64)


def write_sound(path: Path, samples: np.ndarray, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(samples.astype("<i2").tobytes())


def test_errors_are_those_of_the_definitions(tmp_path: Path) -> None:
    """A file for each sample; the expected figures follow from onnxruntime's outputs."""
    model = write_line(tmp_path / "line.onnx", 6, 2)
    vectors = RANDOM.normal(0, 1, (20, 6)).astype(np.float32)
    found = outputs_of(model, vectors)
    labels = found + RANDOM.normal(0, 0.5, found.shape)
    lines = ["file,first,second"]
    for place, vector in enumerate(vectors):
        np.save(tmp_path / f"{place}.npy", vector[None])
        lines.append(f"{place}.npy,{','.join(map(repr, labels[place].tolist()))}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    ws = edgekit.Workspace(tmp_path)
    report = ws.evaluate(model, tmp_path, "regression", board="local", model=model)

    off = labels - found
    r2 = 1 - (off**2).sum(0) / ((labels - labels.mean(0)) ** 2).sum(0)
    assert report.value("mae") == pytest.approx(np.abs(off).mean(), abs=1e-5)
    assert report.value("rmse") == pytest.approx(np.sqrt((off**2).mean()), abs=1e-5)
    assert report.value("r2") == pytest.approx(r2.mean(), abs=1e-5)
    assert report.value("difference") == pytest.approx(0, abs=1e-5)


def test_rows_of_arrays_are_samples(tmp_path: Path) -> None:
    model = write_line(tmp_path / "line.onnx", 6, 1)
    vectors = RANDOM.normal(0, 1, (9, 6)).astype(np.float32)
    np.save(tmp_path / "inputs.npy", vectors)
    np.save(tmp_path / "labels.npy", outputs_of(model, vectors)[:, 0] + 0.25)
    report = edgekit.Workspace(tmp_path).evaluate(
        model, tmp_path, "regression", board="local", at_most={"mae": 0.3, "rmse": 0.2}
    )

    assert report.samples == 9
    assert report.value("mae") == pytest.approx(0.25, abs=1e-5)
    assert [limit.metric for limit in report.missed] == ["rmse"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("file,y\n../outside.npy,1\n", "names .*outside"),
        ("file,y\ninside.npy,one\n", "no file with its numbers"),
        ("file,y\ninside.npy,nan\n", "no file with its numbers"),
        ("file,y\n", "holds no labels"),
        ("file,a,b\ninside.npy,1,2\n", "2 labels, and the model returns 1 number"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, table: str, message: str) -> None:
    model = write_line(tmp_path / "line.onnx", 6, 1)
    data = tmp_path / "data"
    data.mkdir()
    np.save(tmp_path / "outside.npy", np.zeros((1, 6), np.float32))
    np.save(data / "inside.npy", np.zeros((1, 6), np.float32))
    (data / "labels.csv").write_text(table)

    with pytest.raises(InputError, match=message):
        edgekit.Workspace(tmp_path).evaluate(model, data, "regression", board="local")


def test_an_array_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    model = write_line(tmp_path / "line.onnx", 6, 1)
    np.save(tmp_path / "inputs.npy", np.zeros((50, 6), np.float32))
    np.save(tmp_path / "labels.npy", np.zeros(50))
    whole = (tmp_path / "inputs.npy").read_bytes()
    (tmp_path / "inputs.npy").write_bytes(whole[:300])

    with pytest.raises(InputError, match=r"inputs\.npy"):
        edgekit.Workspace(tmp_path).evaluate(model, tmp_path, "regression", board="local")


def test_sounds_are_heard_as_the_model_takes_them(tmp_path: Path) -> None:
    """Short sounds end in silence, long ones are cut, and a .npy is taken as it is."""
    model = write_line(tmp_path / "words.onnx", SAMPLES, 6)
    data = tmp_path / "data"
    (data / "on").mkdir(parents=True)
    (data / "labels.txt").write_text("go\nno\noff\non\nstop\nyes\n")
    waves = []
    for place, length in enumerate((SAMPLES, SAMPLES // 2, SAMPLES * 2)):
        samples = RANDOM.integers(-32768, 32768, length)
        write_sound(data / "on" / f"{place}.wav", samples)
        waves.append(np.pad(samples[:SAMPLES], (0, SAMPLES - min(length, SAMPLES))) / 32768)
    np.save(data / "on" / "whole.npy", waves[0].astype(np.float32)[None])
    found = outputs_of(model, np.array([*waves, waves[0]], np.float32)).argmax(1)
    report = edgekit.Workspace(tmp_path).evaluate(
        model, data, "keyword", board="local", model=model
    )

    assert report.samples == 4
    assert report.value("top1") == (found == 3).mean()
    right = int(found[0])
    (data / "on").rename(data / ("go", "no", "off", "on", "stop", "yes")[right])
    again = edgekit.Workspace(tmp_path).evaluate(model, data, "keyword", board="local")
    assert again.value("top1") == (found == right).mean() > 0


def test_sound_of_two_channels_is_refused(tmp_path: Path) -> None:
    model = write_line(tmp_path / "words.onnx", SAMPLES, 6)
    data = tmp_path / "data"
    (data / "3").mkdir(parents=True)
    write_sound(data / "3" / "a.wav", np.zeros(SAMPLES), channels=2)
    ws = edgekit.Workspace(tmp_path)

    with pytest.raises(InputError, match="2 channels of 16 bits"):
        ws.evaluate(model, data, "keyword", board="local")
    (data / "3" / "a.wav").write_bytes(b"RIFF, or so it says")
    with pytest.raises(InputError, match="no sound that can be read"):
        ws.evaluate(model, data, "keyword", board="local")
