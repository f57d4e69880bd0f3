"""A model file that another program changes between its hash and its use is noticed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.bundles import make_bundle
from support.needs import needs
from support.tflite_models import Op, T, constant, tflite_bytes

from edgekit.base.errors import BundleError, ModelError
from edgekit.base.events import SILENT
from edgekit.base.tensors import TensorSpec
from edgekit.building.expectation import expect
from edgekit.building.reference_vectors import Edges
from edgekit.models.model import ModelSource, import_model, open_model, scan_model
from edgekit.verbs.quantization.quantiser import Settings
from edgekit.verbs.quantize import QuantizeRequest, quantize

X, Y = TensorSpec("x", "float32", (4,)), TensorSpec("y", "float32", (4,))


def onnx_file(folder: Path, weight: float) -> Path:
    """y = x + w, with w in a file of its own."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    added = numpy_helper.from_array(np.full(4, weight, "float32"), "w")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "net", values[:1], values[1:], [added])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "weights.bin").unlink(missing_ok=True)
    onnx.save(
        model,
        folder / "net.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return folder / "net.onnx"


def tflite_file(folder: Path, weight: float) -> Path:
    tensors = (T("x", (4,)), constant("w", np.full(4, weight)), T("y", (4,)))
    data = tflite_bytes(tensors, (Op("ADD", ("x", "w"), ("y",)),), ("x",), ("y",))
    (folder / "net.tflite").write_bytes(data)
    return folder / "net.tflite"


def torch_file(folder: Path, weight: float) -> Path:
    import torch

    class Added(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.full((4,), weight)

    torch.export.save(torch.export.export(Added(), (torch.ones(4),)), folder / "net.pt2")
    return folder / "net.pt2"


Write = Callable[[Path, float], Path]
FORMATS = [
    pytest.param(onnx_file, id="onnx"),
    pytest.param(tflite_file, id="tflite"),
    pytest.param(torch_file, id="torch", marks=needs("torch")),
]


def swap(folder: Path, write: Write) -> None:
    """Another file in the place of each, of the same size."""
    other = folder / "other"
    other.mkdir(exist_ok=True)
    write(other, 2.0)
    for file in other.iterdir():
        file.replace(folder / file.name)


def test_weights_beside_a_model_are_replaced_before_they_are_imported(tmp_path: Path) -> None:
    source = open_model(onnx_file(tmp_path, 1.0))
    before = (tmp_path / "net.onnx").read_bytes()
    swap(tmp_path, onnx_file)
    assert (tmp_path / "net.onnx").read_bytes() == before  # its weights alone are other ones

    with pytest.raises(ModelError, match=r"net\.onnx changed while edgekit read it"):
        import_model(source)


@pytest.mark.parametrize("write", FORMATS)
def test_a_model_that_is_replaced_after_its_hash_is_neither_imported_nor_listed(
    tmp_path: Path, write: Write
) -> None:
    source = open_model(write(tmp_path, 1.0))
    assert import_model(source).inputs[0].shape == (4,)
    swap(tmp_path, write)

    for read in (import_model, scan_model):
        with pytest.raises(ModelError, match="changed while edgekit read it"):
            read(source)


@pytest.mark.parametrize("write", FORMATS)
def test_a_model_that_is_replaced_after_its_hash_has_no_expected_outputs(
    tmp_path: Path, write: Write
) -> None:
    source = open_model(write(tmp_path, 1.0))
    output = scan_model(source).outputs[0].name
    swap(tmp_path, write)

    with pytest.raises(ModelError, match="changed while edgekit read it"):
        ends = ((X,), (TensorSpec(output, "float32", (4,)),))
        expect(source, 0, ends, SILENT, Edges())


@pytest.mark.parametrize("write", FORMATS)
def test_a_model_that_is_another_one_only_while_it_is_read_is_noticed(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after, the files are those of the hash."""
    path = write(tmp_path, 1.0)
    source = open_model(path)
    frontend = importlib.import_module(f"edgekit.models.{source.format}")
    load, whole = frontend.load, {file: file.read_bytes() for file in source.files}

    def load_another(source: ModelSource, events: object) -> object:
        swap(tmp_path, write)
        found = load(source, events)
        for file, data in whole.items():
            file.write_bytes(data)
        return found

    monkeypatch.setattr(frontend, "load", load_another)
    with pytest.raises(ModelError, match="changed while edgekit read it"):
        import_model(source)
    assert open_model(path).sha256 == source.sha256


def test_a_model_that_is_cut_off_while_it_is_read_is_no_damaged_one(tmp_path: Path) -> None:
    source = open_model(tflite_file(tmp_path, 1.0))
    source.path.write_bytes(source.path.read_bytes()[:100])
    with pytest.raises(ModelError, match="changed while edgekit read it"):
        import_model(source)


def test_a_model_that_is_replaced_after_its_hash_is_not_quantized(tmp_path: Path) -> None:
    source = open_model(onnx_file(tmp_path, 1.0))
    swap(tmp_path, onnx_file)
    with pytest.raises(ModelError, match="changed while edgekit read it"):
        quantize(QuantizeRequest(source, tmp_path / "small.onnx", Settings(), random=1))
    assert not (tmp_path / "small.onnx").exists()


def test_a_bundle_that_changes_after_it_was_opened_is_not_used(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    bundle.copy_file("model.so", tmp_path / "copy.so")
    for file in (bundle.library, bundle.path / "reference/random/input-0.npy"):
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    with pytest.raises(BundleError, match=r"model\.so changed after the bundle was opened"):
        bundle.copy_file("model.so", tmp_path / "again.so")
    with pytest.raises(BundleError, match=r"model\.so changed after the bundle was opened"):
        bundle.check_code()
    with pytest.raises(BundleError, match="changed after the bundle was opened"):
        bundle.reference_inputs()
