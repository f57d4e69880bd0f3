"""A model file that can't be opened is told for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.base.errors import ModelError
from edgekit.models.model import open_model


def refused(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        open_model(path)
    return caught.value


@pytest.mark.parametrize("asked", ["mobilnet.onnx", "mobilenet.tflite"])
def test_a_missing_file_names_the_one_that_was_probably_meant(tmp_path: Path, asked: str) -> None:
    (tmp_path / "mobilenet.onnx").touch()
    (tmp_path / "other.onnx").touch()
    assert refused(tmp_path / asked).hint == "did you mean mobilenet.onnx?"


def test_a_like_suffix_alone_is_no_likeness(tmp_path: Path) -> None:
    (tmp_path / "trunc.onnx").touch()
    assert refused(tmp_path / "nosuch.onnx").hint == "check the path"


def test_a_link_that_leads_nowhere_is_not_offered_as_what_was_meant(tmp_path: Path) -> None:
    for name, target in (("gone.onnx", "nowhere"), ("loop.onnx", "loop.onnx")):
        (tmp_path / name).symlink_to(target)
        assert "is a link to no file" in refused(tmp_path / name).message


def test_a_folder_an_empty_file_and_a_strange_suffix_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "weights.xyz").write_text("x")
    assert "is a folder" in refused(tmp_path / "folder.onnx").message
    assert "is empty" in refused(tmp_path / "empty.onnx").message
    (tmp_path / "model").write_text("x")
    assert "has a suffix that names no" in refused(tmp_path / "weights.xyz").message
    assert "has no suffix" in refused(tmp_path / "model").message
    assert "/dev/null has no suffix" in refused(Path("/dev/null")).message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("net.h5", "a Keras model"), ("net.keras", "a Keras model")),
        *(("net.pt", "weights without the network"), ("net.safetensors", "weights without")),
        *(("net.mlmodel", "Core ML"), ("net.pkl", "pickle"), ("net.joblib", "pickle")),
        *(("net.gguf", "llama.cpp"), ("net.engine", "one GPU"), ("net.onnx.data", "weights")),
    ],
)
def test_a_file_of_another_format_is_refused_with_what_to_do(
    name: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"x")
    error = refused(tmp_path / name)
    assert kind in error.message
    assert error.hint
    assert all(str(tmp_path) in " ".join(error.details) for _ in error.details)


def test_a_folder_of_another_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"x")
    (tmp_path / "net.mlpackage").mkdir()
    assert "from_saved_model" in " ".join(refused(tmp_path / "saved").details)
    assert "a Core ML model" in refused(tmp_path / "net.mlpackage").message
