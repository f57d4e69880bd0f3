"""ncnn's regions on a GPU through Vulkan: Mesa's lavapipe here, which computes on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for, run_edgekit, write_model
from support.ncnn_lab import RegionRunner, ncnn_selection
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.api.functions import make_request
from edgekit.backends.base import OptionValue
from edgekit.backends.offloading import partition_model
from edgekit.base.events import Event, Events, Note, Warned
from edgekit.building.build import build
from edgekit.building.product import OffloadWishes
from edgekit.building.products import product_of
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import import_model, open_model
from edgekit.tuning.regions import measure_regions
from edgekit.verbs.bench import bench
from edgekit.verbs.verify import verify

pytestmark = needs("vulkan", "ncnn-vulkan")

RANDOM = np.random.default_rng(4)
BRIEF = BenchPlan(warmup=1, runs=2, seconds=0)
ON_LAVAPIPE = "ncnn runs all layers on llvmpipe"


def network() -> onnx.ModelProto:
    """Layers of several kinds, with a branch and a result between them."""
    weights = {
        "w": RANDOM.standard_normal((16, 3, 3, 3)).astype("float32") / 5,
        "d": RANDOM.standard_normal((16, 1, 3, 3)).astype("float32") / 3,
        "m": RANDOM.standard_normal((10, 16)).astype("float32") / 4,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "d"], ["c"], group=16, pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["sum"]),
        helper.make_node("GlobalAveragePool", ["sum"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "m"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    return onnx_model(nodes, {"x": [1, 3, 12, 12]}, ["y", "sum"], weights)


def on_vulkan(folder: Path, model: onnx.ModelProto, **options: OptionValue) -> RegionRunner:
    onnx.save(model, folder / "net.onnx")
    selection = ncnn_selection(threads=1, vulkan=True, software_vulkan=True, **options)
    found = partition_model(import_model(open_model(folder / "net.onnx")), selection)
    (region,) = found.regions
    return RegionRunner(region, selection.backends[0][1])


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, 2e-5),
        ({"fp16_storage": True}, 2e-3),
        ({"fp16_storage": True, "fp16_arithmetic": True}, 5e-3),
    ],
)
def test_a_region_is_right_in_each_type(
    options: dict[str, OptionValue], allowed: float, tmp_path: Path
) -> None:
    model = network()
    x = RANDOM.standard_normal((1, 3, 12, 12)).astype("float32")

    run = on_vulkan(tmp_path, model, **options)

    assert run.heard.startswith("note: " + ON_LAVAPIPE)
    made = {value.shape: value for value in run(x)}
    assert len(made) == 2
    for wanted in judged_by_onnxruntime(model, {"x": x}):
        largest = float(np.abs(wanted).max())
        off = float(np.abs(made[wanted.shape] - wanted).max())
        assert off <= allowed * largest
        assert off > 0 or not options


def built(model: Path, folder: Path, **options: OptionValue) -> Bundle:
    request = request_for(model, "local-vulkan")
    plan = product_of(request.board).plan(request.board, OffloadWishes(asked=("ncnn",)))
    own = {**plan.options["ncnn"], **options}
    plan = replace(plan, rates=EVERYTHING_PAYS, options={"ncnn": own})
    return build(replace(request, offload=plan), folder, isolated=False).bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("vulkan")
    return built(write_model(folder / "net.onnx"), folder / "b")


def test_a_bundle_says_where_its_regions_run(bundle: Bundle, tmp_path: Path) -> None:
    told: list[Event] = []

    report = verify(bundle, LocalDevice(), events=Events(told.append))
    measured = bench(bundle, LocalDevice(), BRIEF)

    assert report.passed
    notes = [event.text for event in told if isinstance(event, Note | Warned)]
    (note,) = [note for note in notes if "Vulkan" in note]
    assert note.startswith(ON_LAVAPIPE)
    assert note in measured.notes
    inspected = run_edgekit("inspect", str(bundle.path), folder=tmp_path)
    assert "in 1 region (Vulkan, all layers, float32)" in inspected.out


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("VK_ICD_FILENAMES", "/nowhere.json", "there is no Vulkan driver that works"),
        ("EDGEKIT_VULKAN_DEVICE", "Mali", "no device of Vulkan has Mali in its name"),
    ],
)
def test_without_a_driver_a_region_runs_on_the_cpu_and_says_so_once(
    variable: str, value: str, reason: str, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    told: list[Event] = []

    with LocalDevice().opened(bundle, events=Events(told.append)) as session:
        assert verify(bundle, session).passed
        samples = session.bench(bundle.reference_inputs(), BRIEF)

    assert [event.text for event in told if isinstance(event, Warned)] == [
        f"ncnn runs on the CPU: {reason}"
    ]
    assert samples.warned == (f"ncnn runs on the CPU: {reason}",)
    assert samples.told == ()


def test_software_is_no_gpu_unless_the_profile_says_so(tmp_path: Path) -> None:
    model = write_model(tmp_path / "net.onnx")
    bundle = built(model, tmp_path / "b", software_vulkan=False)
    told: list[Event] = []

    assert verify(bundle, LocalDevice(), events=Events(told.append)).passed

    (warned,) = [event.text for event in told if isinstance(event, Warned)]
    assert warned.startswith("ncnn runs on the CPU: Vulkan has no GPU, only llvmpipe")
    assert warned.endswith(", which is software")


def test_no_time_is_kept_of_a_region_that_left_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    model = write_model(tmp_path / "net.onnx")
    request = make_request(model, "local-vulkan", None, {}, {}, offload=["ncnn"])
    told: list[Event] = []

    after = measure_regions(request, LocalDevice(), Events(told.append), plan=BRIEF)

    assert after.offload.measured == {}
    warned = [event.text for event in told if isinstance(event, Warned)]
    assert [text for text in warned if "is not measured: ncnn runs on the CPU: " in text]
