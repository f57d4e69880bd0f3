"""edgekit partition on a real model, with a backend from a package of its own."""

from __future__ import annotations

import hashlib
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.building import CHECKOUT, Ran, run_edgekit
from support.offloading import install_example_backend, named_network, two_region_network

from edgekit.backends import registry
from edgekit.backends.measurements import Measured, keep_measurement
from edgekit.backends.report import Coverage, PartitionReport
from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.store.lookup import region_costs
from edgekit.store.runs import RegionCost

REGION = ["nn.conv2d", "add", "nn.batch_norm", "nn.relu", "nn.conv2d", "nn.batch_norm", "nn.relu"]
STAYS = ["mean", "reshape", "matmul", "nn.softmax"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example_backend(tmp_path_factory.mktemp("example"))


COMMAND = ("partition", "net.onnx", "--board", "local", "--offload", "loops", "--json")


class Lab:
    """A folder with a model, a user's own data folder, and the backend installed."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        path = os.pathsep.join((str(site), str(CHECKOUT)))
        self.extra = {"PYTHONPATH": path, "XDG_DATA_HOME": str(self.data)}
        named_network(folder / "net.onnx")

    def run(self, *arguments: str, code: int = 0) -> Ran:
        ran = run_edgekit(*arguments, folder=self.folder, extra=self.extra)
        assert ran.code == code, ran.err
        return ran

    def partition(self, *options: str) -> Any:
        return json.loads(self.run(*COMMAND, *options).out)

    def costs(self) -> tuple[RegionCost, ...]:
        """What later builds know."""
        return region_costs("local", f"sqlite:///{self.data / 'edgekit' / 'measurements.db'}")

    def planned(self, offload: tuple[str, ...] | None = None) -> PartitionReport:
        """Return what the command shows, planned in this process."""
        from edgekit.api.functions import make_request
        from edgekit.building.partition import partition

        request = make_request(self.folder / "net.onnx", "local", None, {}, {}, offload=offload)
        return partition(request).report

    def project(self, text: str) -> None:
        (self.folder / "edgekit.toml").write_text(
            f'schema = 1\nmodel = "net.onnx"\n[offload]\n{text}', encoding="utf-8"
        )


@pytest.fixture
def lab(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(site))
    lab = Lab(tmp_path, site)
    monkeypatch.setenv("XDG_DATA_HOME", str(lab.data))
    monkeypatch.setenv("EDGEKIT_STORE", "")
    registry._foreign.cache_clear()
    yield lab
    registry._foreign.cache_clear()


def owned(report: PartitionReport, backend: str | None) -> list[str]:
    return [d.operator for d in report.decisions if d.backend == backend]


def test_every_operator_has_an_owner_and_a_reason(lab: Lab) -> None:
    report = lab.planned(("loops",))
    assert owned(report, "loops") == REGION
    assert owned(report, None) == STAYS
    assert all(decision.reason for decision in report.decisions)
    assert [decision.node for decision in report.decisions][:4] == [
        "/stem/Conv", "/stem/Conv", "/stem/Norm", "/stem/Relu",
    ]  # fmt: skip
    (region,) = report.regions
    macs = 8 * 3 * 9 * 17 * 20 + 8 * 9 * 17 * 20
    assert (region.layers, region.macs) == (2, macs)
    assert report.coverage == Coverage(
        operators=11,
        operators_offloaded=7,
        macs=macs + 80,
        macs_offloaded=macs,
        regions=1,
        crossings=2,
        crossing_bytes=4 * (3 * 33 * 40 + 8 * 17 * 20),
        library_us=None,
        tvm_us=None,
        measured_by=None,
    )


def test_without_a_backend_tvm_runs_everything(lab: Lab) -> None:
    report = lab.planned()
    assert report.backends == ()
    assert report.coverage.operators_offloaded == 0
    assert {decision.reason for decision in report.decisions} == {"no backend was asked for"}


@pytest.mark.parametrize(
    ("text", "offloaded", "said"),
    [
        ('never = ["/depth/*"]', REGION[:4], "the user said never"),
        ('never = ["relu"]', [], "the user said never"),
        ("[offload.cost]\ncall_us = 1e6", [], "the boundary costs about 1.00 s"),
        ('force = ["/stem/*"]\n[offload.cost]\ncall_us = 1e6', REGION, "the user forced it"),
    ],
)
def test_a_project_says_what_goes_where(
    lab: Lab, text: str, offloaded: list[str], said: str
) -> None:
    lab.project(f'backends = ["loops"]\n{text}')
    report = lab.planned()
    assert owned(report, "loops") == offloaded
    assert any(said in decision.reason for decision in report.decisions)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('backends = ["loops"]\nforce = ["softmax"]', "softmax can't be offloaded"),
        ('backends = ["loops"]\nforce = ["/no/Such"]', "which is no operator of this model"),
        ('backends = ["lops"]', "there is no backend 'lops'"),
        ('backends = ["loops"]\n[offload.loops]\nthreads = 2', "has no option 'threads'"),
    ],
)
def test_what_can_t_be_done_is_one_sentence_and_a_hint(lab: Lab, text: str, said: str) -> None:
    lab.project(text)
    with pytest.raises(EdgekitError) as caught:
        lab.planned()
    assert said in caught.value.message
    assert caught.value.hint


def test_a_never_that_means_nothing_is_told(lab: Lab) -> None:
    lab.project('backends = ["loops"]\nnever = ["/stem/Cnv"]')
    (note,) = lab.planned().notes
    assert "'/stem/Cnv', which is no operator" in note


class _Sources(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object"):
            self.fetched.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_command_reports_draws_and_writes_down(lab: Lab) -> None:
    document = lab.partition(
        "--svg", "graph.svg", "--html", "graph.html", "--export-json", "regions.json"
    )
    assert [d["operator"] for d in document["decisions"] if d["backend"] == "loops"] == REGION
    _check_pictures(lab.folder)
    _check_export(lab.folder)


def _check_pictures(folder: Path) -> None:
    svg = ElementTree.fromstring((folder / "graph.svg").read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text or "" for title in svg.iter(f"{space}title")]
    assert len(titles) == 1 + 2 + len(STAYS) + 1  # input, layers, operators, output
    assert sum(title.startswith("loops: ") for title in titles) == 2
    assert sum(title.startswith("TVM: no backend has a rule") for title in titles) == len(STAYS)
    page = (folder / "graph.html").read_text(encoding="utf-8")
    sources = _Sources()
    sources.feed(page)
    assert sources.fetched == []
    assert "/stem/Conv" in page


def _layers(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    (region,) = document["regions"]
    layers: list[dict[str, Any]] = region["layers"]
    return layers


def _check_export(folder: Path) -> None:
    first, second = _layers(json.loads((folder / "regions.json").read_text()))
    content = (folder / "regions.weights").read_bytes()
    assert (first["kind"], first["nodes"]) == (
        "ConvNormRelu",
        ["/stem/Conv", "/stem/Norm", "/stem/Relu"],
    )
    assert first["settings"]["strides"] == [2, 2]
    assert second["inputs"] == first["outputs"]
    for layer in (first, second):
        for weight in layer["weights"].values():
            assert weight["offset"] % 64 == 0
            data = content[weight["offset"] : weight["offset"] + weight["bytes"]]
            assert hashlib.sha256(data).hexdigest() == weight["sha256"]


def test_a_folder_of_weights_says_the_same(lab: Lab) -> None:
    from edgekit.api.functions import make_request
    from edgekit.backends.region_export import export_regions
    from edgekit.building.partition import partition

    request = make_request(Path("net.onnx"), "local", None, {}, {}, offload=("loops",))
    regions = partition(request).regions
    for _ in range(2):  # the second replaces the first
        export_regions(regions, Path("regions"))
    export_regions(regions, Path("one.json"))
    folder = _layers(json.loads(Path("regions/regions.json").read_text()))
    file = _layers(json.loads(Path("one.json").read_text()))
    for layer, same in zip(folder, file, strict=True):
        for name, weight in layer["weights"].items():
            array = np.load(Path("regions") / weight["file"])
            assert list(array.shape) == weight["shape"]
            assert hashlib.sha256(array.tobytes()).hexdigest() == same["weights"][name]["sha256"]


def test_one_layer_each_merges_nothing(lab: Lab) -> None:
    merged, alone = lab.partition(), lab.partition("--one-layer-each")

    assert max(region["layers"] for region in merged["regions"]) > 1
    assert {region["layers"] for region in alone["regions"]} == {1}


def test_an_export_replaces_no_folder_that_is_something_else(tmp_path: Path) -> None:
    from edgekit.backends.region_export import export_regions

    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(EdgekitError, match=r"'thesis\.txt'"):
        export_regions((), tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.slow
def test_what_was_measured_decides_from_then_on_and_is_not_measured_again(lab: Lab) -> None:
    lab.partition("--measure")
    (record,) = lab.costs()
    assert record.agrees
    assert record.library_us > 0
    assert record.tvm_us > 0
    report = lab.planned(("loops",))
    assert bool(owned(report, "loops")) == (record.library_us < 0.98 * record.tvm_us)
    assert "measured on local" in report.decisions[0].reason

    lab.partition("--measure")
    assert lab.costs() == (record,)
    lab.partition("--measure", "--again")
    (new,) = lab.costs()
    assert new.measured_at > record.measured_at
    assert new.region == record.region

    keep_measurement(Measured(**{**asdict(new), "library_us": 1.0, "tvm_us": 1000.0}))
    report = lab.planned(("loops",))
    assert owned(report, "loops") == REGION
    assert (report.coverage.library_us, report.coverage.tvm_us) == (1.0, 1000.0)


def test_with_the_store_off_regions_are_measured_for_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "off")
    ran = lab.run(*COMMAND, "--measure")
    assert "no store is in use" in ran.err
    assert lab.costs() == ()
    assert not list(lab.data.rglob("*.db"))


class _Interrupted(LocalDevice):
    """This machine, where somebody presses Ctrl-C when a bundle too many is opened."""

    opened_before = 0

    def opened(self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT) -> Any:
        if _Interrupted.opened_before == 2:
            raise KeyboardInterrupt
        _Interrupted.opened_before += 1
        return super().opened(bundle, purpose=purpose, events=events)


def test_what_was_measured_before_ctrl_c_is_kept_and_the_rest_goes_on(lab: Lab) -> None:
    from edgekit.api.functions import make_request
    from edgekit.tuning.regions import measure_regions

    model = two_region_network(lab.folder / "two.onnx")
    brief = BenchPlan(warmup=1, runs=3, seconds=0)

    def request() -> BuildRequest:
        return make_request(model, "local", None, {}, {}, offload=("loops",))

    with pytest.raises(KeyboardInterrupt):
        measure_regions(request(), _Interrupted(60.0), plan=brief)
    kept = request().offload.measured
    assert len(kept) == 1
    measured = measure_regions(request(), LocalDevice(240.0), plan=brief).offload.measured
    assert len(measured) == 2
    assert measured == request().offload.measured
    assert kept.items() <= measured.items()


def test_a_device_without_a_measurement_is_a_mistake(lab: Lab) -> None:
    ran = lab.run("partition", "net.onnx", "--board", "local", "--device", "local", code=2)
    assert "error: --device and --again are for --measure" in ran.err


def test_the_example_backend_builds_and_its_numbers_are_the_oracle_s(lab: Lab) -> None:
    lab.run("build", "net.onnx", "--board", "local", "--offload", "loops", "-o", "out")
    (region,) = json.loads((lab.folder / "out" / "manifest.json").read_text())["regions"]
    assert region["operators"] == REGION
    assert os.fsencode(region["name"]) in (lab.folder / "out" / "model.so").read_bytes()
    lab.run("verify", "out")
