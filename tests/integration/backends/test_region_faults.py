"""What can go wrong with regions between a model and a device, done to real ones.

| what goes wrong | where it is tested; a name without a file is here |
|---|---|
| a library that the device lacks | test_a_library_that_the_device_lacks_is_named (ncnn's OpenMP), test_a_library_beside_the_model_that_is_gone_is_named, test_onednn_backend.py: test_a_built_bundle_computes_what_onnxruntime_computes, test_region_calls.py: test_a_model_needs_nothing_of_the_board_but_the_c_library, of all three |
| another version of it | test_a_library_of_another_version_beside_the_model_is_told (ncnn's OpenMP), test_a_library_of_the_users_own_that_does_not_fit_is_named, test_what_was_measured_with_another_library_does_not_count, test_onednn_backend.py: test_an_older_onednn_than_the_region_was_written_for_is_told |
| corrupt weights | test_damaged_weights_*; test_BACKEND_backend.py: test_weights_that_are_cut_off_are_an_error, of ncnn, ACL and oneDNN |
| no memory inside the library | test_region_calls.py: test_no_memory_inside_the_library_is_an_error_with_the_layers_name, of all three |
| a shape that is known only at run time | test_a_shape_that_is_known_only_at_run_time_is_refused, of each backend |
| no channels | test_no_channels_are_refused, of each backend |
| NaN and infinity | test_BACKEND_backend.py: test_nan_and_infinity_*, of ncnn, ACL and oneDNN |
| a codegen or a rule that raises | test_a_backend_that_writes_nothing_good_is_told_with_its_layers, test_a_rule_that_raises_is_told_with_its_backend_and_operator |
| a compiler error in generated code | test_a_backend_that_writes_nothing_good_is_told_with_its_layers |
| two models with the same regions in one process | test_region_calls.py: test_models_with_the_same_region_live_in_one_process, of all three; test_ncnn_backend.py: test_two_models_with_the_same_region_live_in_one_process, in TVM |
| 64 threads | test_region_calls.py: test_64_threads_call_one_model_for_the_first_time_at_once, of all three |
"""  # noqa: E501

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for, write_model
from support.local_bundles import copied, resealed
from support.ncnn_lab import lab
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS, selection_for
from support.onnx_models import onnx_model
from support.region_lab import library_here

from edgekit.backends.base import GeneratedRegion, Layer, Options, Region
from edgekit.backends.match import Match
from edgekit.backends.ncnn import Ncnn
from edgekit.backends.offloading import partition_model
from edgekit.backends.partition import partition
from edgekit.backends.plan import OffloadPlan
from edgekit.base.errors import BuildError, BundleError, DeviceError
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.cross.sources import built_in_recipe
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import import_model, open_model
from edgekit.verbs.verify import verify

pytestmark = needs("ncnn")

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
        (raises, "ncnn could not write the region edgekit_ncnn_", ""),
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
    assert re.search("the region edgekit_ncnn_[0-9a-f]{16} of sum[+]features", caught.value.message)
    assert "[offload] never" in (caught.value.hint or "")
    assert detail in "\n".join(caught.value.details)
    assert not (tmp_path / "bundle").exists()


BACKENDS = ("ncnn", "acl", "onednn", "tensorrt")


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_channels_are_refused(backend: str, tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 0, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["all"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    onnx.save(onnx_model(nodes, {"x": [1, 0, 4, 4]}, ["all", "y"], weights), tmp_path / "none.onnx")
    model = import_model(open_model(tmp_path / "none.onnx"))

    found = partition_model(model, selection_for(backend))

    assert found.regions == ()
    reasons = [d.reason for d in found.decisions if d.operator in ("nn.conv2d", "nn.relu")]
    assert reasons
    assert all("without elements" in reason for reason in reasons), reasons


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shape_that_is_known_only_at_run_time_is_refused(backend: str) -> None:
    from tvm import relax, tirx

    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((1, 8, tirx.Var("n", "int64")), "float32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.nn.relu(given)))
        builder.emit_func_output(result)
    found = partition(builder.get(), selection_for(backend))

    assert found.regions == ()
    assert [d.reason for d in found.decisions if "run time" in d.reason]


def test_a_rule_that_raises_is_told_with_its_backend_and_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(match: Match) -> Layer:
        raise ZeroDivisionError("no such layer")

    rules = Ncnn().rules(selection_for("ncnn").backends[0][1])
    broken = [dataclasses.replace(rule, take=raising) for rule in rules]
    monkeypatch.setattr(Ncnn, "rules", lambda self, options: broken)
    model = import_model(open_model(write_model(tmp_path / "tiny.onnx")))

    with pytest.raises(BuildError) as caught:
        partition_model(model, selection_for("ncnn"))

    assert "the backend ncnn failed at its rule" in caught.value.message
    assert "ZeroDivisionError: no such layer" in caught.value.message
    assert 'never = ["nn.relu"]' in (caught.value.hint or "")


def test_a_library_of_another_version_beside_the_model_is_told(
    bundle: Bundle, tmp_path: Path
) -> None:
    """One that lacks what the region was linked with."""
    folder = copied(bundle, tmp_path / "copy")
    older = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libgomp.so.1", "-x", "c", "-"]
    subprocess.run([*older, "-o", str(folder / "libgomp.so.1")], input="", text=True, check=True)

    with pytest.raises(DeviceError) as caught:
        verify(resealed(bundle, folder), LocalDevice())

    said = "\n".join((caught.value.message, *caught.value.details))
    assert "while loading" in said
    assert re.search("version G?OMP_[0-9.]+", said), said


@pytest.fixture
def another_ncnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own, with headers that are not those of the backend's version."""
    folder = tmp_path / "own"
    shutil.copytree(library_here("ncnn").folder, folder)
    header = folder / "include" / "ncnn" / "net.h"
    header.write_text(header.read_text().replace("class NCNN_EXPORT Net", "class NCNN_EXPORT Web"))
    monkeypatch.setenv("EDGEKIT_LIBRARY_NCNN", str(folder))
    return folder


def test_a_library_of_the_users_own_that_does_not_fit_is_named(
    another_ncnn: Path, tmp_path: Path
) -> None:
    with pytest.raises(BuildError) as caught:
        built(tmp_path)

    assert "does not compile" in caught.value.message
    assert str(another_ncnn) in (caught.value.hint or "")


def test_what_was_measured_with_another_library_does_not_count(another_ncnn: Path) -> None:
    own = Ncnn().version

    assert own.startswith("own-")
    (another_ncnn / "include" / "ncnn" / "net.h").write_text("class Net;")
    os.environ["EDGEKIT_LIBRARY_NCNN"] = f"{another_ncnn}/../own"  # versions are kept by name
    assert Ncnn().version not in (own, built_in_recipe("ncnn").version)
    del os.environ["EDGEKIT_LIBRARY_NCNN"]
    assert Ncnn().version == built_in_recipe("ncnn").version


def test_a_library_of_the_users_own_is_linked_with_what_it_needs_of_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_LIBRARY_NCNN", str(library_here("ncnn").folder))

    bundle = built(tmp_path)

    assert (bundle.path / "libgomp.so.1").is_file()
    assert verify(bundle, LocalDevice()).passed
