"""What the ncnn backend promises beyond its operators: one region, few copies, clear errors."""

from __future__ import annotations

import ctypes
import dataclasses
import json
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
from support.ncnn_lab import RegionRunner, lab, ncnn_selection, offloaded
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.region_lab import aligned
from support.source import ROOT

from benchmarks.networks import NETWORKS
from edgekit.backends.base import Region
from edgekit.backends.ncnn.codegen import generate
from edgekit.backends.ncnn.net import net_of
from edgekit.backends.offloading import partition_model
from edgekit.backends.partition import Partition
from edgekit.backends.plan import OffloadPlan, selection_of
from edgekit.building.build import build
from edgekit.bundle.folder import open_bundle
from edgekit.devices.local.device import LocalDevice
from edgekit.devices.local.program import Program
from edgekit.models.model import Model, import_model, open_model
from edgekit.verbs.verify import verify

pytestmark = needs("ncnn")

PLAN = OffloadPlan(("ncnn",), rates=EVERYTHING_PAYS)


def imported(model: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return import_model(open_model(path))


def node(operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"/{output}", **attributes)


def small_network(size: int = 8) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {
        "first": random.standard_normal((16, 3, 3, 3)).astype("float32"),
        "second": random.standard_normal((10, 16)).astype("float32"),
    }
    nodes = [
        node("Conv", ["image", "first"], "features", pads=[1] * 4),
        node("Relu", ["features"], "positive"),
        node("GlobalAveragePool", ["positive"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("Gemm", ["flat", "second"], "scores", transB=1),
    ]
    return onnx_model(nodes, {"image": [1, 3, size, size]}, ["scores"], weights)


def image(size: int = 8) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 3, size, size)).astype("float32")


def only_region(model: Model, **options: object) -> tuple[Region, RegionRunner]:
    selection = ncnn_selection(threads=1, **options)
    (region,) = partition_model(model, selection).regions
    return region, RegionRunner(region, selection.backends[0][1])


def partitioned(model: onnx.ModelProto, folder: Path) -> Partition:
    return partition_model(imported(model, folder), selection_of(OffloadPlan(("ncnn",))))


@pytest.mark.parametrize(
    "name",
    [
        *("MobileNetV2", "ResNet-18", "RetinaFace", "SqueezeNet"),
        # Hundreds of megabytes of weights.
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("AlexNet", "ResNet-50", "YOLOv8n")),
    ],
)
def test_a_network_is_one_region_that_copies_no_more_than_ncnn_forces(
    name: str, tmp_path: Path
) -> None:
    """Planes of 227x227 floats are no whole vectors, and ncnn's channels start at such."""
    found = partitioned(NETWORKS[name](), tmp_path)

    assert [d.operator for d in found.decisions if d.backend != "ncnn"] == []
    (region,) = found.regions
    assert region.macs == sum(decision.macs for decision in found.decisions) > 2e8
    forced = 3 * 227 * 227 * 4 if name == "AlexNet" else 0
    run = RegionRunner(region, ncnn_selection(threads=1).backends[0][1])
    run(*(np.full(tensor.shape, 0.5, "float32") for tensor in region.inputs))
    assert run.copied == forced


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV2", "SqueezeNet", "ResNet-18"])
def test_a_network_in_ncnn_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]()
    given = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")
    (expected,) = judged_by_onnxruntime(network, {"image": given})

    (actual,) = offloaded(imported(network, tmp_path), [given]).outputs

    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-5 * scale)


@pytest.mark.parametrize(("size", "copied"), [(8, 0), (7, 3 * 7 * 7 * 4)])
def test_an_image_is_read_in_place_where_its_planes_are_whole_vectors(
    size: int, copied: int, tmp_path: Path
) -> None:
    _, run = only_region(imported(small_network(size), tmp_path))

    run(image(size))

    assert run.copied == copied


@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize("light_mode", [True, False])
def test_results_that_others_read_too_are_not_overwritten(
    light_mode: bool, channels: int, tmp_path: Path
) -> None:
    """Activations work in place, and what they are given is a result of the region as well."""
    random = np.random.default_rng(2)
    weights = {"w": random.standard_normal((channels, 3, 1, 1)).astype("float32")}
    nodes = [
        node("Conv", ["x", "w"], "first"),
        node("Tanh", ["first"], "second"),
        node("Sigmoid", ["first"], "third"),
        node("Add", ["second", "third"], "sum"),
        node("Elu", ["sum"], "fourth"),
        node("HardSwish", ["fourth"], "fifth"),
    ]
    names = ["fifth", "first", "second", "third", "fourth", "sum"]
    model = onnx_model(nodes, {"x": [1, 3, 8, 8]}, names, weights)

    result = offloaded(imported(model, tmp_path), [image()], light_mode=light_mode)

    assert len(result.regions) == 1
    for actual, wanted in zip(
        result.outputs, judged_by_onnxruntime(model, {"x": image()}), strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=2e-5)


def test_a_layer_that_works_in_place_leaves_the_input_alone(tmp_path: Path) -> None:
    model = onnx_model([node("Relu", ["x"], "y")], {"x": [1, 4, 8, 8]}, ["y"], {})
    _, run = only_region(imported(model, tmp_path))
    given = aligned(np.full((1, 4, 8, 8), -1, np.float32))

    (result,) = run(given)

    assert run.copied <= result.nbytes
    assert (result == 0).all()
    assert (given == -1).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_an_error_that_names_the_tensor(value: float, tmp_path: Path) -> None:
    _, run = only_region(imported(small_network(), tmp_path))
    given = image()
    given[0, 1, 2, 3] = value

    with pytest.raises(RuntimeError, match=r"image.* holds NaN or infinity.*non_finite"):
        run(given)


def test_nan_and_infinity_get_through_where_the_user_wants_that(tmp_path: Path) -> None:
    _, run = only_region(imported(small_network(), tmp_path), non_finite="pass")
    given = image()
    given[0, 0, 0, 0] = np.inf

    run(given)


@pytest.mark.parametrize("change", [lambda blob: blob[:-4], lambda blob: b""])
def test_weights_that_are_cut_off_are_an_error(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    region, _ = only_region(imported(small_network(), tmp_path))
    blob = net_of(region).weights("fp32")

    with pytest.raises(RuntimeError, match="could not read the weights"):
        RegionRunner(region, ncnn_selection().backends[0][1], weights=change(blob))


def test_weights_that_are_left_over_are_an_error(tmp_path: Path) -> None:
    region, _ = only_region(imported(small_network(), tmp_path))
    blob = net_of(region).weights("fp32") + bytes(8)

    with pytest.raises(RuntimeError, match="8 bytes more than the layers read"):
        RegionRunner(region, ncnn_selection().backends[0][1], weights=blob)


def test_64_threads_may_call_one_region(tmp_path: Path) -> None:
    _, run = only_region(imported(small_network(), tmp_path))
    images = [image() * factor for factor in range(64)]
    expected = [run(value)[0] for value in images]

    with ThreadPoolExecutor(64) as pool:
        for _ in range(5):
            results = list(pool.map(lambda value: run(value)[0], images))
            assert all(map(np.array_equal, results, expected))


OUT_OF_MEMORY = """
import resource, sys
import numpy as np
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from test_ncnn_backend import imported, node, only_region
from support.onnx_models import onnx_model

weights = {"w": np.ones((256, 3, 1, 1), np.float32)}
nodes = [
    node("Conv", ["image", "w"], "wide"),
    node("Sigmoid", ["wide"], "bent"),
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


def test_no_memory_inside_ncnn_is_an_error_with_the_layers_name(tmp_path: Path) -> None:
    """256 planes of a million floats are a gibibyte, and there are 200 MiB."""
    lab()
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
    assert "/wide" in process.stdout
    assert "no memory" in process.stdout


@pytest.mark.parametrize(
    "options",
    [
        {"packing": False},
        {"winograd": False, "sgemm": False},
        {"light_mode": False},
        {"fp16_storage": True, "fp16_arithmetic": True},
        {"bf16_storage": True},
    ],
    ids=str,
)
def test_options_change_how_a_region_computes_and_not_what(
    options: dict[str, bool], tmp_path: Path
) -> None:
    network = small_network()
    (expected,) = judged_by_onnxruntime(network, {"image": image()})
    _, run = only_region(imported(network, tmp_path), **options)

    (actual,) = run(image())

    close = {"fp16_storage": 1e-2, "bf16_storage": 0.15}.get(next(iter(options)), 2e-5)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=close)


def test_weights_in_float16_take_half_the_room_and_stay_close(tmp_path: Path) -> None:
    model = imported(small_network(), tmp_path)
    region, exact = only_region(model)
    _, rounded = only_region(model, weights="fp16")
    options = ncnn_selection().backends[0][1]

    (full,) = exact(image())
    (half,) = rounded(image())

    sizes = [
        len(generate(region, {**options, "weights": kind}).blobs["weights"])
        for kind in ("fp32", "fp16")
    ]
    assert sizes[1] < 0.52 * sizes[0]
    assert 0 < np.abs(full - half).max() < 2e-3 * np.abs(full).max()


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    found = partition_model(imported(model, folder), ncnn_selection())
    (reason,) = {d.reason for d in found.decisions if d.backend is None}
    return reason


def test_a_batch_of_two_is_refused_where_channels_matter(tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 3, 1, 1), np.float32)}
    model = onnx_model([node("Conv", ["x", "w"], "y")], {"x": [2, 3, 4, 4]}, ["y"], weights)

    assert refusal(model, tmp_path) == "ncnn: its batch is 2, and ncnn's is always 1"


def test_five_axes_behind_the_batch_are_refused(tmp_path: Path) -> None:
    model = onnx_model([node("Relu", ["x"], "y")], {"x": [1, 2, 2, 2, 2, 2]}, ["y"], {})

    assert "holds 4 axes" in refusal(model, tmp_path)


@pytest.mark.parametrize("rounding", ["Floor", "Ceil", "Round"])
def test_a_quotient_that_is_rounded_to_a_whole_number_stays_in_tvm(
    rounding: str, tmp_path: Path
) -> None:
    """ncnn's vectors multiply by a reciprocal: 3 / 2 is a little less than 1.5 there."""
    nodes = [
        node("Div", ["x", "y"], "quotient"),
        node("Add", ["quotient", "one"], "more"),
        node(rounding, ["more"], "whole"),
        node("Relu", ["whole"], "z"),
    ]
    weights = {"one": np.float32(1), "y": np.arange(1, 17, dtype="float32").reshape(1, 16, 1)}
    model = onnx_model(nodes, {"x": [1, 16, 30]}, ["z"], weights)
    x = np.tile(np.arange(30, dtype="float32"), (1, 16, 1))

    result = offloaded(imported(model, tmp_path), [x])

    assert [why.split(":")[0] for why in result.left] == ["divide"]
    assert "whole numbers" in result.left[0]
    np.testing.assert_array_equal(result.outputs[0], judged_by_onnxruntime(model, {"x": x})[0])


NUMBERS = np.array(
    [0, -0.0, 1, -1, 0.75, -3, 2.0**-126, 2.0**126, 88, 100, -100, 1e30, -1e30, 5.5, -2.5, 3e9],
    np.float32,
)
"""Zeros, the ends of the normal numbers, and what exponentials overflow at."""
FUNCTIONS = (
    *("Abs", "Neg", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Erf"),
    *("Relu", "LeakyRelu", "Elu", "Sigmoid", "HardSigmoid", "Tanh", "Softplus", "HardSwish"),
)
PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")


def check_at_the_ends(
    nodes: list[onnx.NodeProto], given: dict[str, np.ndarray], folder: Path, **weights: np.ndarray
) -> None:
    shapes = {name: array.shape for name, array in given.items()}
    model = onnx_model(nodes, shapes, [one.output[0] for one in nodes], weights)
    result = offloaded(imported(model, folder), list(given.values()))
    for name, mine, judge in zip(
        (one.op_type for one in nodes),
        result.outputs,
        judged_by_onnxruntime(model, given),
        strict=True,
    ):
        np.testing.assert_allclose(mine, judge, rtol=1e-3, atol=1e-6, err_msg=name)


def test_zeros_and_large_numbers_give_the_same_in_ncnn(tmp_path: Path) -> None:
    """Functions, also of a number of elements that leaves some over behind the last vector."""
    nodes = [node(name, ["x"], f"y{place}") for place, name in enumerate(FUNCTIONS)]

    check_at_the_ends(nodes, {"x": np.resize(NUMBERS, (1, 3, 17))}, tmp_path)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_zeros_and_large_numbers_give_the_same_in_ncnn(name: str, tmp_path: Path) -> None:
    """Two tensors, and a constant on either side: a tensor and each number."""
    left, right = (side.reshape(1, 16, 16) for side in np.meshgrid(NUMBERS, NUMBERS, indexing="ij"))
    scalars = {f"c{place}": number for place, number in enumerate(NUMBERS)}
    whole = [
        node(name, ["x", "right"], "b"),
        node(name, ["right", "x"], "c"),
        *(node(name, ["x", word], f"d{word}") for word in scalars),
        *(node(name, [word, "x"], f"e{word}") for word in scalars),
    ]

    check_at_the_ends([node(name, ["x", "z"], "a")], {"x": left, "z": right}, tmp_path)
    check_at_the_ends(whole, {"x": left}, tmp_path, right=right, **scalars)


def test_a_constant_with_a_reciprocal_is_divided_by_in_ncnn(tmp_path: Path) -> None:
    nodes = [node("Div", ["x", "y"], "z"), node("Div", ["z", "scalar"], "w")]
    weights = {"y": NUMBERS[2:].copy(), "scalar": np.float32(3)}
    model = onnx_model(nodes, {"x": [1, 5, 14]}, ["w"], weights)
    x = np.random.default_rng(3).uniform(-1, 1, (1, 5, 14)).astype("float32")

    result = offloaded(imported(model, tmp_path), [x])

    assert result.left == ()
    np.testing.assert_allclose(
        result.outputs[0], judged_by_onnxruntime(model, {"x": x})[0], rtol=1e-5, atol=1e-38
    )


def built(folder: Path, size: int = 8) -> Path:
    """The generated C++ itself, through a whole build."""
    path = folder / "model.onnx"
    onnx.save(small_network(size), path)
    request = dataclasses.replace(request_for(path), offload=PLAN)
    build(request, folder / "bundle", isolated=False)
    return folder / "bundle"


def test_a_built_bundle_computes_what_onnxruntime_computes(tmp_path: Path) -> None:
    lab()
    bundle = open_bundle(built(tmp_path))

    report = verify(bundle, LocalDevice())

    assert report.passed


def test_two_models_with_the_same_region_live_in_one_process(tmp_path: Path) -> None:
    lab()
    programs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        programs.append(Program(str(built(tmp_path / name) / "model.so"), 1, print))

    for program in programs:
        program.prepare([image()])()

    (first,), (second,) = (program.outputs() for program in programs)
    assert np.array_equal(first, second)
    (expected,) = judged_by_onnxruntime(small_network(), {"image": image()})
    np.testing.assert_allclose(first, expected, atol=2e-5)


def test_a_library_says_what_its_region_copied_in_a_call(tmp_path: Path) -> None:
    lab()
    library = built(tmp_path, size=7) / "model.so"
    model = import_model(open_model(tmp_path / "model.onnx"))
    (region,) = partition_model(model, selection_of(PLAN)).regions
    call = Program(str(library), 1, print).prepare([image(7)])
    for _ in range(3):
        call()

    copied = ctypes.CDLL(str(library))[f"edgekit_copied_{region.symbol}"]()

    assert copied in (3 * 7 * 7 * 4, 3 * 7 * 7 * 4 + 10 * 4)


NODE_CASES = (
    "^test_(relu|leakyrelu_default|maxpool_2d_ceil|averagepool_2d_pads|"
    "gemm_all_attributes|softmax_axis_1|transpose_all_permutations_3|add_bcast)$"
)


@pytest.mark.slow
def test_node_cases_of_onnx_are_right_with_ncnn_in_them(tmp_path: Path) -> None:
    """A few of those that `benchmarks/onnx_nodes.py --offload ncnn` runs, with C++ compiled for
    each."""
    lab()
    script, out = ROOT / "benchmarks" / "onnx_nodes.py", tmp_path / "verdicts.json"
    command = [sys.executable, str(script), "--offload", "ncnn", "--filter", NODE_CASES]
    subprocess.run([*command, "--jobs", "2", "--json", str(out)], check=True, cwd=tmp_path)

    found = json.loads(out.read_text())
    assert len(found) == 8
    assert {item["verdict"] for item in found} == {"right"}
    assert all(item["regions"] for item in found)
