"""edgekit mlperf: MLPerf's own LoadGen asks, and a model on this machine answers."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from support.building import run_edgekit
from support.needs import needs
from support.onnx_models import onnx_model
from support.ssh_server import ssh_server

import edgekit
from edgekit.base.errors import InputError
from edgekit.bundle.folder import Bundle
from edgekit.devices.linux.ssh import SshDevice
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.mlperf import mlperf
from edgekit.verbs.mlperf.log import read_detail_log
from edgekit.verbs.mlperf.mlperf import MlperfPlan, run_mlperf

pytestmark = needs("loadgen")

RANDOM = np.random.default_rng(7)
SEED = 2085463073848966840
"""The seed of LoadGen's library of samples in this version of MLPerf's rules."""


@dataclass(frozen=True)
class Classified:
    folder: Path
    bundle: Bundle
    best: list[int]
    """The class that onnxruntime gives each sample, in the order of their names."""
    labels: list[int]

    @property
    def ws(self) -> edgekit.Workspace:
        return edgekit.Workspace(self.folder)


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory) -> Classified:
    folder = tmp_path_factory.mktemp("mlperf")
    weights = np.random.default_rng(3).normal(size=(16, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["scores"])]
    path = folder / "net.onnx"
    onnx.save(onnx_model(nodes, {"x": [1, 16]}, ["scores"], {"weights": weights}), path)
    session = onnxruntime.InferenceSession(str(path))
    best, labels = [], []
    random = np.random.default_rng(4)
    for label in range(3):
        (folder / "data" / str(label)).mkdir(parents=True)
        for number in (*range(10), "9a", "9b"):
            x = (random.normal(size=(1, 16)) * 2 + weights[:, label]).astype(np.float32)
            np.save(folder / "data" / str(label) / f"{number}.npy", x)
            best.append(int(session.run(None, {"x": x})[0].argmax()))
            labels.append(label)
    bundle = edgekit.Workspace(folder).build("net.onnx", board="local")
    return Classified(folder, bundle, best, labels)


def report_of(classified: Classified, scenario: str) -> dict[str, Any]:
    """What the command prints of both tests, briefly."""
    words = ["mlperf", str(classified.bundle.path), "--data", "data", "--task", "classification"]
    words += ["--scenario", scenario, "--seconds", "0.1", "--queries", "100", "-o", "out", "--json"]
    ran = run_edgekit(*words, folder=classified.folder)
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out))


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_the_logs_are_those_of_a_submission(classified: Classified, scenario: str) -> None:
    right = sum(a == b for a, b in zip(classified.best, classified.labels, strict=True))
    assert 0 < right < 36, "the data must be neither hopeless nor easy"
    report = report_of(classified, scenario)
    assert report["performance"]["valid"] is True
    assert report["performance"]["errors"] == []
    assert (report["performance"]["latency"] is None) == (scenario == "Offline")
    assert (report["performance"]["throughput"] is None) == (scenario == "SingleStream")
    assert report["measured_by"] == "hardware"
    assert report["accuracy"][0]["value"] == pytest.approx(right / 36)
    assert report["obstacles"] == ["it was told to last 0.1 s, and the rules ask for 600 s"]

    run = classified.folder / "out" / scenario
    detail = read_detail_log(run / "performance/run_1/mlperf_log_detail.txt")
    assert detail.value("effective_scenario") == scenario
    assert detail.value("effective_test_mode") == "PerformanceOnly"
    assert detail.value("effective_qsl_rng_seed") == SEED
    assert "Result is : VALID" in (run / "performance/run_1/mlperf_log_summary.txt").read_text()
    kept = json.loads((run / "accuracy/mlperf_log_accuracy.json").read_text())
    answers = {one["qsl_idx"]: struct.unpack("<q", bytes.fromhex(one["data"]))[0] for one in kept}
    assert answers == dict(enumerate(classified.best))
    said = (run / "accuracy/accuracy.txt").read_text()
    assert said == f"accuracy={100 * right / 36:.3f}%, good={right}, total=36\n"


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_a_device_that_becomes_much_faster_is_asked_again(
    classified: Classified, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlperf._System, "warm_up", lambda system, scenario: 1.0)
    how = {"modes": ("performance",), "queries": 100, "seconds": 0.3, "out": "faster"}
    report = classified.ws.mlperf(classified.bundle, "data", "classification", scenario, **how)
    assert report.performance is not None
    assert report.performance.valid, report.performance.reason


def test_a_stream_has_as_many_queries_as_it_has_time_for(classified: Classified) -> None:
    how = {"modes": ("performance",), "queries": 100, "seconds": 0.2, "out": "short"}
    report = classified.ws.mlperf(
        classified.bundle, "data", "classification", "SingleStream", **how
    )
    assert report.performance is not None
    assert report.performance.queries >= 100
    assert report.performance.latency is not None
    assert report.performance.latency >= report.performance.seconds / 2
    assert report.accuracy == ()
    assert str(report).startswith("net")


def test_a_sample_that_can_not_be_read_ends_loadgen(classified: Classified) -> None:
    """LoadGen asks for all samples, the warm-up before it for the first ones only."""
    last = classified.folder / "data" / "2" / "9b.npy"
    whole = last.read_bytes()
    last.write_bytes(b"nothing")
    try:
        with pytest.raises(InputError, match=r"9b\.npy"):
            classified.ws.mlperf(
                *(classified.bundle, "data", "classification", "Offline"), seconds=0.1, out="bad"
            )
    finally:
        last.write_bytes(whole)
    assert "VALID" not in "".join(
        file.read_text() for file in (classified.folder / "bad").rglob("*summary.txt")
    )


def test_a_benchmark_of_mlperfs_has_its_rules(classified: Classified) -> None:
    with pytest.raises(InputError, match=r"resnet50 is measured on 1,024 samples, and .* has 36"):
        classified.ws.mlperf(
            *(classified.bundle, "data", "classification", "Offline"), benchmark="resnet50", out="r"
        )


@needs("sshd")
@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_a_board_over_ssh_answers_and_the_way_to_it_is_told(
    classified: Classified, scenario: str, tmp_path: Path
) -> None:
    with ssh_server(tmp_path / "server") as server:
        server.connect("barn").close()
        device = SshDevice(server.entry("barn"), load_toolchain("host"), 240, server.known_hosts)
        plan = MlperfPlan(
            *(classified.folder / "data", "classification", scenario, tmp_path / "out"),
            seconds=0.1,
            queries=3,
        )
        report = run_mlperf(classified.bundle, device, plan)
    right = sum(a == b for a, b in zip(classified.best, classified.labels, strict=True))
    assert report.performance is not None
    assert report.performance.queries >= (3 if scenario == "SingleStream" else 1)
    assert report.accuracy[0].value == pytest.approx(right / 36)
    assert any("the way to the board" in obstacle for obstacle in report.obstacles)


def test_a_log_that_is_damaged_is_said_in_a_sentence(tmp_path: Path) -> None:
    log = tmp_path / "mlperf_log_detail.txt"
    for text in (":::MLLOG {", ":::MLLOG []", ':::MLLOG {"key": 1}'):
        log.write_text(text)
        with pytest.raises(InputError, match="no detailed log"):
            read_detail_log(log)
