"""Kernel by kernel, on this machine and through the agent: two implementations that must agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support.local_bundles import built_bundle
from support.needs import needs
from support.on_device import bench_on
from support.ssh_server import ssh_server

from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.kernel_times import KernelTimes
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.local.device import LocalDevice
from edgekit.profiles.toolchain import load_toolchain

pytestmark = needs("sshd")

PLAN = BenchPlan(warmup=1, runs=3, seconds=0, profiled=4, traced=2)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built_bundle(tmp_path_factory.mktemp("built"))[1]


@pytest.fixture(scope="module")
def here(bundle: Bundle) -> KernelTimes:
    times = bench_on(LocalDevice(), bundle, PLAN).kernels
    assert times is not None
    return times


def assert_traced(times: KernelTimes) -> None:
    """Each step of an inference begins after the one before has ended, and all lie within."""
    assert len(times.timeline) == 2
    for inference in times.timeline:
        assert inference.kernels == tuple(range(len(times.kernels)))
        now = 0
        for _, start, nanoseconds in inference.calls():
            assert start >= now
            now = start + nanoseconds
        assert 0 < now <= inference.nanoseconds


def calls(times: KernelTimes) -> dict[str, int]:
    return {kernel.name: kernel.calls for kernel in times.kernels}


def test_the_kernels_are_the_steps_of_the_library(here: KernelTimes, bundle: Bundle) -> None:
    content = bundle.library.read_bytes()

    assert calls(here)
    assert all(name.encode() + b"\0" in content for name in calls(here))
    assert here.inferences == 4
    assert set(calls(here).values()) == {4}
    assert any(kernel.nanoseconds > 0 for kernel in here.kernels)


def test_a_timeline_holds_every_step_in_order(here: KernelTimes) -> None:
    assert_traced(here)


def test_the_agent_sees_the_same_calls(here: KernelTimes, bundle: Bundle, tmp_path: Path) -> None:
    with ssh_server(tmp_path) as server:
        server.connect().close()
        device = SshDevice(server.entry(), load_toolchain("host"), 120, server.known_hosts)
        there = bench_on(device, bundle, PLAN).kernels

    assert there is not None
    assert calls(there) == calls(here)
    assert there.inferences == here.inferences
    assert_traced(there)
    assert [one.kernels for one in there.timeline] == [one.kernels for one in here.timeline]


def test_without_being_asked_nothing_is_profiled(bundle: Bundle) -> None:
    assert bench_on(LocalDevice(), bundle, BenchPlan(0, 1, 0)).kernels is None


def test_the_command_shows_a_table_and_gives_everything_to_scripts(bundle: Bundle) -> None:
    command = [sys.executable, "-m", "edgekit", "bench", "--runs", "2"]
    shown = subprocess.run(
        [*command, "--profile", str(bundle.path)], capture_output=True, text=True, timeout=300
    )
    told = subprocess.run(
        [*command, str(bundle.path), "--profile", "3", "--json"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert shown.returncode == told.returncode == 0, shown.stderr + told.stderr
    profile = json.loads(told.stdout)["profile"]
    assert profile["inferences"] == 3
    limits = profile["limits"]
    assert 1e8 < limits["float32"] < 1e14
    assert 1e8 < limits["integers"] < 1e15
    assert 1e7 < limits["bytes"] < 1e13
    assert "The hardware reaches" in shown.stdout
    slowest = profile["kernels"][0]
    assert slowest["share"] == max(kernel["share"] for kernel in profile["kernels"])
    assert "10 profiled inferences" in shown.stdout
    assert slowest["layers"]
    layers = ", ".join(slowest["layers"])
    (row,) = [line for line in shown.stdout.splitlines() if line.startswith(layers + " ")]
    assert re.search(r"[0-9] % +([0-9.]+ %|-)$", row), "a share, and what it reaches of the best"
    rows = [*(kernel["seconds"] for kernel in profile["kernels"]), profile["copies"]]
    assert sum(rows) + profile["rest"] == pytest.approx(json.loads(told.stdout)["median"])


def test_the_steps_of_a_bundle_are_those_of_the_library_with_layers_of_the_model(
    here: KernelTimes, bundle: Bundle
) -> None:
    assert [step.name for step in bundle.manifest.steps] == list(calls(here))
    model = onnx.load(bundle.path.parent / "model.onnx")
    nodes = {node.name or node.output[0] for node in model.graph.node}
    layers = {layer for step in bundle.manifest.steps for layer in step.layers}
    assert layers
    assert layers <= nodes


def test_the_command_writes_a_trace_of_the_layers(bundle: Bundle, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    command = [sys.executable, "-m", "edgekit", "bench", "--runs", "2", "--trace", str(file)]

    shown = subprocess.run(
        [*command, str(bundle.path)], capture_output=True, text=True, timeout=300
    )

    assert shown.returncode == 0, shown.stderr
    assert str(file) in shown.stdout
    traced = [one for one in json.loads(file.read_text())["traceEvents"] if one["ph"] == "X"]
    steps = [one["args"]["step"] for one in traced if one["cat"] != "inference"]
    assert steps == [step.name for step in bundle.manifest.steps] * 5
    assert all(one["args"]["layer"] for one in traced if one["cat"] == "kernel")

    several = subprocess.run(
        [*command, str(bundle.path), "--all"], capture_output=True, text=True, timeout=300
    )
    assert several.returncode == 2
    assert "a trace is of one bundle on one device" in several.stderr
