"""Broken ONNX files are refused with a sentence; weight files are found and kept inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.base.errors import ModelError
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.onnx import content_files
from edgekit.models.onnx.files import read_model, read_structure


def small_model(weight: TensorProto | None = None) -> onnx.ModelProto:
    weight = weight or numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [weight],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def external_weight(location: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def write(folder: Path, data: bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1234\n", "text file"),
        (small_model().SerializeToString()[:-20], "damaged or cut off"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no ONNX graph"),
        (bytes(range(128, 256)), "damaged or cut off"),
    ],
)
def test_what_is_no_model_is_refused_with_its_reason(
    tmp_path: Path, data: bytes, says: str
) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        read_structure(write(tmp_path, data))
    assert caught.value.hint


def test_every_truncation_is_refused_or_read_but_never_another_error(tmp_path: Path) -> None:
    whole = small_model().SerializeToString()
    for length in range(1, len(whole)):
        try:
            read_structure(write(tmp_path, whole[:length]))
        except ModelError as error:
            assert error.hint


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        read_structure(tmp_path / "absent.onnx")
    with pytest.raises(ModelError, match="folder"):
        read_structure(tmp_path)


def test_an_ir_version_from_before_onnx_1_1_is_refused(tmp_path: Path) -> None:
    model = small_model()
    model.ir_version = 2
    with pytest.raises(ModelError, match="IR version 2"):
        read_structure(write(tmp_path, model.SerializeToString()))


def test_a_graph_without_outputs_is_refused(tmp_path: Path) -> None:
    model = small_model()
    del model.graph.output[:]
    with pytest.raises(ModelError, match="without outputs"):
        read_structure(write(tmp_path, model.SerializeToString()))


def test_weight_files_belong_to_the_content_and_are_loaded(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "weights.bin").write_bytes(values.tobytes())
    path = write(tmp_path, small_model(external_weight("weights.bin")).SerializeToString())
    assert content_files(path) == (path, tmp_path / "weights.bin")
    loaded = numpy_helper.to_array(read_model(path).graph.initializer[0])
    np.testing.assert_array_equal(loaded, values)


def test_a_missing_weight_file_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, small_model(external_weight("weights.bin")).SerializeToString())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"weights\.bin") as caught:
        content_files(Path("model.onnx"))
    assert caught.value.hint == f"copy it to {tmp_path / 'weights.bin'}"


def test_a_weight_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"1234")
    path = write(tmp_path, small_model(external_weight("weights.bin")).SerializeToString())
    load_tvm()  # so that torch is not loaded with it
    from edgekit.models.onnx.importer import to_array

    with pytest.raises(ModelError):
        to_array(read_model(path).graph.initializer[0])


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin"])
def test_weights_outside_the_models_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"x" * 24)
    inner = tmp_path / "inner"
    inner.mkdir()
    path = write(inner, small_model(external_weight(location)).SerializeToString())
    with pytest.raises(ModelError, match="outside"):
        content_files(path)


def test_a_link_out_of_the_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(b"x" * 24)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "weights.bin").symlink_to(tmp_path / "secret.bin")
    path = write(inner, small_model(external_weight("weights.bin")).SerializeToString())
    with pytest.raises(ModelError, match="outside"):
        content_files(path)
