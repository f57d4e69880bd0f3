"""Regions timed both ways on a device: this machine, one behind SSH, an emulated board; with the
libraries themselves. test_partition_command.py has what is the same for every backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.arm_machine import arm_library
from support.examples import first_of
from support.needs import TWIN, needs
from support.offloading import named_network
from support.region_lab import library_here
from support.ssh_server import SshServer, ssh_server
from support.twins import edgekit, edgekit_json, twins_in

from edgekit.api.functions import make_request
from edgekit.base.errors import UsageError
from edgekit.base.events import Event, Events, Warned
from edgekit.building.build import build
from edgekit.building.partition import partition
from edgekit.building.request import BuildRequest
from edgekit.devices.base import BenchPlan
from edgekit.devices.device import Device
from edgekit.devices.linux import probe
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.local.device import LocalDevice
from edgekit.profiles.toolchain import load_toolchain
from edgekit.store.lookup import region_costs
from edgekit.store.runs import RegionCost
from edgekit.tuning.regions import measure_regions

BRIEF = BenchPlan(warmup=1, runs=3, seconds=0)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a folder of its own, with a store that is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    return named_network(tmp_path / "net.onnx")


def asked(model: Path, *backends: str, twin: bool = False) -> BuildRequest:
    return make_request(model, "local", None, {}, {}, offload=backends, twin=twin)


def measured(model: Path, device: Device, *backends: str) -> tuple[RegionCost, ...]:
    request = measure_regions(asked(model, *backends), device, plan=BRIEF)
    return tuple(request.offload.measured.values())


def check_decided_by(cost: RegionCost, request: BuildRequest, folder: Path) -> None:
    """A figure used by partition and by build alike."""
    pays = cost.library_us < 0.98 * cost.tvm_us
    found = partition(request)
    assert [region.symbol for region in found.regions] == ([cost.region] if pays else [])
    assert any(f"measured on {cost.device}: " in d.reason for d in found.report.decisions)
    regions = build(request, folder / "bundle", isolated=False).bundle.manifest.regions
    assert [region.name for region in regions] == ([cost.region] if pays else [])
    assert all(f"measured on {cost.device}: " in region.reason for region in regions)


@needs("ncnn", "onednn")
@pytest.mark.parametrize("backend", first_of("ncnn", "onednn"))
def test_a_library_is_timed_against_tvm_here_and_the_next_build_goes_by_that(
    backend: str, model: Path, tmp_path: Path
) -> None:
    library_here(backend)

    (cost,) = measured(model, LocalDevice(), backend)

    assert cost.agrees
    assert cost.library_us > 0
    assert cost.tvm_us > 0
    assert (cost.board, cost.backend, cost.device) == ("local", backend, "local")
    assert asked(model, backend).offload.measured == {cost.region: cost}
    check_decided_by(cost, asked(model, backend), tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        running.connect().close()
        yield running


def device_on(server: SshServer, *, twin: bool = False) -> SshDevice:
    known, toolchain = server.known_hosts, load_toolchain("host")
    return SshDevice(server.entry("pi"), toolchain, 120, known, is_emulated=twin)


@needs("sshd", "onednn")
def test_regions_are_timed_behind_ssh(model: Path, tmp_path: Path, server: SshServer) -> None:
    library_here("onednn")

    (cost,) = measured(model, device_on(server), "onednn")

    assert cost.agrees
    assert (cost.board, cost.device) == ("local", "pi")
    check_decided_by(cost, asked(model, "onednn"), tmp_path)


@needs("sshd", "onednn")
def test_what_an_emulated_board_measures_decides_for_no_real_one(
    model: Path, server: SshServer
) -> None:
    library_here("onednn")
    told: list[Event] = []

    request = measure_regions(
        asked(model, "onednn"), device_on(server, twin=True), Events(told.append), plan=BRIEF
    )

    (cost,) = request.offload.measured.values()
    assert any("is emulated" in event.text for event in told if isinstance(event, Warned))
    assert asked(model, "onednn").offload.measured == {}
    assert asked(model, "onednn", twin=True).offload.measured == {cost.region: cost}


@needs("sshd", "onednn")
def test_a_twin_that_was_added_as_a_board_decides_nothing(
    model: Path, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_here("onednn")
    of_qemu = tmp_path / "compatible"
    of_qemu.write_bytes(b"linux,dummy-virt\0")
    monkeypatch.setattr(probe, "PLATFORM", (str(of_qemu),))
    with pytest.raises(UsageError, match="pi runs in QEMU"):
        measure_regions(asked(model, "onednn"), device_on(server), plan=BRIEF)
    assert asked(model, "onednn").offload.measured == {}


@needs(*TWIN, "ncnn-rpi4", "acl-rpi4")
@pytest.mark.slow
def test_both_libraries_of_an_emulated_pi_are_timed_there(model: Path, twin_cache: Path) -> None:
    for backend in ("ncnn", "acl"):
        arm_library(backend)
    ways = ("net.onnx", "--board", "rpi4", "--offload", "ncnn,acl", "--twin")
    with twins_in(twin_cache), pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(model.parent))
        patch.setenv("XDG_CONFIG_HOME", str(model.parent / "config"))
        assert edgekit("twin", "up", "rpi4").returncode == 0
        report = edgekit_json("partition", *ways, "--measure")
        deployed = edgekit_json("deploy", *ways, "--no-bench", "-o", "bundle")

    costs = {cost.backend: cost for cost in region_costs("rpi4 (twin)")}
    assert region_costs("rpi4") == ()
    assert "ncnn" in costs  # and acl, unless ncnn took everything
    assert all(cost.agrees and cost.device == "rpi4" for cost in costs.values())
    decided = {region["symbol"] for region in report["regions"]}
    assert decided <= {cost.region for cost in costs.values()}
    assert deployed["verification"]["passed"] is True
    manifest = json.loads((model.parent / "bundle" / "manifest.json").read_text())
    assert {region["name"] for region in manifest["regions"]} == decided
