"""What the oneDNN backend promises beyond its operators: one region, tensors that others still read
left alone, clear errors."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS, selection_for
from support.onednn_lab import OneDnnRegion, offloaded
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.region_lab import compile_lab, library_here
from support.source import ROOT

from benchmarks.networks import NETWORKS
from edgekit.backends.base import Region
from edgekit.backends.offloading import partition_model
from edgekit.backends.plain.program import program_of
from edgekit.backends.plan import OffloadPlan, selection_of
from edgekit.base.errors import EdgekitError
from edgekit.building.build import build
from edgekit.bundle.folder import open_bundle
from edgekit.devices.local.device import LocalDevice
from edgekit.devices.local.program import Program
from edgekit.models.model import Model, import_model, open_model
from edgekit.verbs.verify import verify

pytestmark = needs("onednn")


def imported(model: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return import_model(open_model(path))


def node(operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"/{output}", **attributes)


def residual_network() -> onnx.ModelProto:
    """Tensors that are added to what is made of them, one of which is read once more later."""
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape).astype("float32") * 0.3
        for name, shape in (
            ("w0", (16, 3, 3, 3)),
            *((f"w{index}", (16, 16, 3, 3)) for index in (1, 2, 3)),
            ("b1", (16,)),
            ("dense", (16, 10)),
        )
    }
    nodes = [
        node("Conv", ["image", "w0"], "stem", pads=[1] * 4),
        node("Relu", ["stem"], "kept"),
        node("Conv", ["kept", "w1", "b1"], "first", pads=[1] * 4),
        node("Add", ["kept", "first"], "added"),
        node("Relu", ["added"], "once"),
        node("Conv", ["once", "w2"], "second", pads=[1] * 4),
        node("Add", ["second", "kept"], "twice"),
        node("Conv", ["twice", "w3"], "third", pads=[1] * 4),
        node("Add", ["twice", "third"], "features"),
        node("GlobalAveragePool", ["features"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("MatMul", ["flat", "dense"], "scores"),
    ]
    return onnx_model(nodes, {"image": [1, 3, 9, 10]}, ["scores", "features"], weights)


def image(batch: int = 1) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((batch, 3, 9, 10)).astype("float32")


def only_region(model: Model, **options: object) -> tuple[Region, OneDnnRegion]:
    selection = selection_for("onednn", **{"threads": 1, **options})
    (region,) = partition_model(model, selection).regions
    return region, OneDnnRegion(region, selection.backends[0][1])


def test_what_is_added_to_is_overwritten_only_where_nobody_reads_it_any_more(
    tmp_path: Path,
) -> None:
    model = residual_network()
    expected = judged_by_onnxruntime(model, {"image": image()})

    result = offloaded(imported(model, tmp_path), [image()])

    assert len(result.regions) == 1
    assert result.left == ()
    assert [step.rule for step in result.regions[0].steps].count("conv2d+add") == 2
    for actual, wanted in zip(result.outputs, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_network_is_one_region_that_computes_what_onnxruntime_computes(
    name: str, tmp_path: Path
) -> None:
    network = NETWORKS[name]()
    (given,) = network.graph.input
    shape = [axis.dim_value for axis in given.type.tensor_type.shape.dim]
    value = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = judged_by_onnxruntime(network, {given.name: value})

    result = offloaded(imported(network, tmp_path), [value])

    assert len(result.regions) == 1
    for actual, wanted in zip(result.outputs, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=5e-5 * np.abs(wanted).max())


def test_products_in_bfloat16_stay_close(tmp_path: Path) -> None:
    model = imported(residual_network(), tmp_path)

    exact = only_region(model)[1](image())
    rounded = only_region(model, arithmetic="bf16")[1](image())

    for one, other in zip(exact, rounded, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=0.05 * np.abs(one).max())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_an_error_that_names_the_tensor(value: float, tmp_path: Path) -> None:
    _, run = only_region(imported(residual_network(), tmp_path))
    given = image()
    given[0, 1, 2, 3] = value

    with pytest.raises(RuntimeError, match=r"image.* holds NaN or infinity.*non_finite"):
        run(given)


def test_nan_and_infinity_get_through_where_the_user_wants_that(tmp_path: Path) -> None:
    _, run = only_region(imported(residual_network(), tmp_path), non_finite="pass")
    given = image()
    given[0, 0, 0, 0] = np.inf

    run(given)


@pytest.mark.parametrize("change", [lambda blob: blob[:-4], lambda blob: b""])
def test_weights_that_are_cut_off_are_an_error(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    region, _ = only_region(imported(residual_network(), tmp_path))

    with pytest.raises(RuntimeError, match="weights are cut off"):
        OneDnnRegion(
            region,
            selection_for("onednn").backends[0][1],
            weights=change(program_of(region).weights),
        )


def test_64_threads_may_call_one_region(tmp_path: Path) -> None:
    _, run = only_region(imported(residual_network(), tmp_path))
    images = [image() * factor for factor in range(64)]
    expected = [run(value) for value in images]

    with ThreadPoolExecutor(64) as pool:
        for _ in range(3):
            results = list(pool.map(run, images))
            for made, wanted in zip(results, expected, strict=True):
                assert all(map(np.array_equal, made, wanted))


def test_several_threads_compute_what_one_does(tmp_path: Path) -> None:
    model = imported(residual_network(), tmp_path)

    alone = only_region(model)[1](image())
    together = only_region(model, threads=2)[1](image())

    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(one).max())


OUT_OF_MEMORY = """
import resource, sys
import numpy as np
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from test_onednn_backend import imported, node, only_region
from support.onnx_models import onnx_model

weights = {"w": np.ones((256, 3, 1, 1), np.float32)}
nodes = [
    node("Conv", ["image", "w"], "wide"),
    node("Softmax", ["wide"], "bent", axis=1),
    node("GlobalAveragePool", ["bent"], "pooled"),
]
model = onnx_model(nodes, {"image": [1, 3, 1024, 1024]}, ["pooled"], weights)
_, run = only_region(imported(model, Path(sys.argv[3])))
given = np.zeros((1, 3, 1024, 1024), np.float32)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (200 << 20), resource.RLIM_INFINITY))
try:
    run(given)
except RuntimeError as error:
    print(error)
"""


def test_no_memory_between_layers_is_an_error_that_names_them(tmp_path: Path) -> None:
    """256 planes of a million floats are a gibibyte, and there are 200 MiB."""
    library_here("onednn")
    tests = ROOT / "tests"
    process = subprocess.run(
        [
            *(sys.executable, "-c", OUT_OF_MEMORY),
            *(str(tests / "integration/backends"), str(tests), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )

    assert process.returncode == 0, process.stderr[-2000:]
    assert "no memory" in process.stdout
    assert "/wide" in process.stdout


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    found = partition_model(imported(model, folder), selection_for("onednn"))
    (reason,) = {d.reason for d in found.decisions if d.backend is None}
    return reason


def test_what_is_refused_has_a_reason(tmp_path: Path) -> None:
    wide = onnx_model([node("Relu", ["x"], "y")], {"x": [1, 2, 2, 2, 2, 2]}, ["y"], {})
    whole = onnx_model([node("Abs", ["x"], "y")], {"x": [2, 2]}, ["y"], {})
    whole.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    whole.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32

    assert refusal(wide, tmp_path) == "onednn: oneDNN holds 5 axes, and it has 6"
    assert refusal(whole, tmp_path) == "onednn: its input is int32, and the library takes float32"


def built(folder: Path) -> Path:
    """The generated C++ itself, through a whole build."""
    path = folder / "model.onnx"
    onnx.save(residual_network(), path)
    plan = OffloadPlan(("onednn",), rates=EVERYTHING_PAYS)
    request = dataclasses.replace(request_for(path), offload=plan)
    build(request, folder / "bundle", isolated=False)
    return folder / "bundle"


def test_a_built_bundle_computes_what_onnxruntime_computes(tmp_path: Path) -> None:
    library_here("onednn")
    folder = built(tmp_path)

    report = verify(open_bundle(folder), LocalDevice())

    assert report.passed
    assert (folder / "libdnnl.so.3").is_file()

    (folder / "libdnnl.so.3").unlink()
    with pytest.raises(EdgekitError, match=r"libdnnl\.so\.3"):
        verify(open_bundle(folder), LocalDevice())


def test_a_library_says_what_its_region_copied_in_a_call(tmp_path: Path) -> None:
    library_here("onednn")
    library = built(tmp_path) / "model.so"
    plan = OffloadPlan(("onednn",), rates=EVERYTHING_PAYS)
    model = import_model(open_model(tmp_path / "model.onnx"))
    (region,) = partition_model(model, selection_of(plan)).regions
    Program(str(library), 1, print).prepare([image()])()

    copied = ctypes.CDLL(str(library))[f"edgekit_copied_{region.symbol}"]()

    features = 16 * 9 * 10 * 4
    assert copied in (0, features, features + image().nbytes)


def test_an_older_onednn_than_the_region_was_written_for_is_told(tmp_path: Path) -> None:
    (include,) = library_here("onednn").include
    shutil.copytree(include, tmp_path / "include")
    header = tmp_path / "include" / "oneapi" / "dnnl" / "dnnl_version.h"
    newer = re.sub(r"(#define DNNL_VERSION_MINOR) \d+", r"\1 999", header.read_text())
    header.write_text(newer)
    region, _ = only_region(imported(residual_network(), tmp_path))
    options = selection_for("onednn").backends[0][1]

    lab = compile_lab("onednn", [tmp_path / "include"])

    with pytest.raises(RuntimeError, match=r"oneDNN 3\.\d+ is loaded.* built for 3\.999"):
        OneDnnRegion(region, options, lab=lab)
