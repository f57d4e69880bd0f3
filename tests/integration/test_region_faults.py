"""What can go wrong with regions between a model and a device, done to real ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for, write_model
from support.local_bundles import copied, resealed
from support.ncnn_lab import lab, ncnn_selection
from support.onnx_models import onnx_model
from support.region_lab import EVERYTHING_PAYS

from edgekit.backends.base import GeneratedRegion, Options, Region
from edgekit.backends.ncnn import Ncnn
from edgekit.backends.partition import partition
from edgekit.backends.plan import OffloadPlan
from edgekit.build import build
from edgekit.bundle import Bundle, open_bundle
from edgekit.devices.local import LocalDevice
from edgekit.errors import BuildError, BundleError, DeviceError
from edgekit.model import import_model, open_model
from edgekit.pipeline import partition_model
from edgekit.verify import verify

OFFLOADED = OffloadPlan(("ncnn",), rates=EVERYTHING_PAYS)


def built(folder: Path) -> Bundle:
    request = request_for(write_model(folder / "tiny.onnx"))
    request = dataclasses.replace(request, offload=OFFLOADED)
    return build(request, folder / "bundle", use_cache=False, isolated=False).bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    lab()
    return built(tmp_path_factory.mktemp("offloaded"))


def test_a_library_beside_the_model_that_is_gone_is_named(bundle: Bundle, tmp_path: Path) -> None:
    folder = copied(bundle, tmp_path / "copy")
    (folder / "libgomp.so.1").unlink()

    with pytest.raises(BundleError, match=r"libgomp\.so\.1"):
        open_bundle(folder)


def test_a_library_that_the_device_lacks_is_named(bundle: Bundle, tmp_path: Path) -> None:
    folder = copied(bundle, tmp_path / "copy")
    library = folder / "model.so"
    library.write_bytes(library.read_bytes().replace(b"libgomp.so.1\0", b"libg0mp.so.1\0"))

    with pytest.raises(DeviceError) as caught:
        verify(resealed(bundle, folder), LocalDevice())

    assert "libg0mp.so.1" in "\n".join((caught.value.message, *caught.value.details))
    assert caught.value.hint


def test_damaged_weights_are_not_run(bundle: Bundle, tmp_path: Path) -> None:
    folder = copied(bundle, tmp_path / "copy")
    first = np.linspace(-1, 1, 108, dtype=np.float32)[0] * np.float32(0.1)
    library = folder / "model.so"
    content = library.read_bytes()
    assert first.tobytes() in content
    library.write_bytes(content.replace(first.tobytes(), (first * 2).tobytes()))

    with pytest.raises(BundleError, match=r"model\.so"):
        open_bundle(folder)


def test_damaged_weights_that_somebody_vouches_for_do_not_verify(
    bundle: Bundle, tmp_path: Path
) -> None:
    folder = copied(bundle, tmp_path / "copy")
    library = folder / "model.so"
    first = (np.linspace(-1, 1, 108, dtype=np.float32)[:1] * np.float32(0.1)).tobytes()
    library.write_bytes(library.read_bytes().replace(first, np.float32(9).tobytes()))

    assert not verify(resealed(bundle, folder), LocalDevice()).passed


def raises(region: Region, options: Options) -> GeneratedRegion:
    raise KeyError("no such layer")


def writes_nonsense(region: Region, options: Options) -> GeneratedRegion:
    return GeneratedRegion(region.symbol, region.backend, "class Net { this is no C++ };\n")


@pytest.mark.parametrize(
    ("generate", "said", "detail"),
    [
        (raises, "ncnn could not write the region of", ""),
        (writes_nonsense, "ncnn wrote does not compile", "error"),
    ],
)
def test_a_backend_that_writes_nothing_good_is_told_with_its_layers(
    generate: Callable[[Region, Options], GeneratedRegion],
    said: str,
    detail: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab()
    monkeypatch.setattr(Ncnn, "generate", lambda self, region, options: generate(region, options))

    with pytest.raises(BuildError) as caught:
        built(tmp_path)

    assert said in caught.value.message
    assert "sum+features" in caught.value.message
    assert "[offload] never" in (caught.value.hint or "")
    assert detail in "\n".join(caught.value.details)
    assert not (tmp_path / "bundle").exists()


def test_no_channels_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    onnx.save(onnx_model(nodes, {"x": [1, 0, 4, 4]}, ["y"], {}), tmp_path / "empty.onnx")
    model = import_model(open_model(tmp_path / "empty.onnx"))

    found = partition_model(model, ncnn_selection())

    assert found.regions == ()
    assert all("without elements" in d.reason for d in found.decisions)


def test_a_shape_that_is_known_only_at_run_time_is_refused() -> None:
    from tvm import relax, tirx

    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((1, 8, tirx.Var("n", "int64")), "float32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.nn.relu(given)))
        builder.emit_func_output(result)
    found = partition(builder.get(), ncnn_selection())

    assert found.regions == ()
    assert [d.reason for d in found.decisions if "run time" in d.reason]
