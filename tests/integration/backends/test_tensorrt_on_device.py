"""What speaks to TensorRT, compiled on a device over SSH, or here: with headers that are stubs.

They prove that the source gets there and is compiled, linked, kept and loaded. Nothing of NVIDIA's
runs here, and nothing about TensorRT follows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS
from support.onnx_models import onnx_model
from support.source import ROOT
from support.ssh_server import SshServer, ssh_server

from edgekit.backends.plan import OffloadPlan
from edgekit.backends.tensorrt.source import with_own_headers
from edgekit.base.errors import BuildError, DeviceError, EdgekitError, MissingToolError
from edgekit.base.events import Event, Events, StageEnded, StageProgress
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.deploy import DeployPlan, deploy_bundle
from edgekit.verbs.export.application import export
from edgekit.verbs.rollback import rollback

pytestmark = needs("sshd")

STUBS = ROOT / "tests" / "support" / "tensorrt_header_stubs"
STAND_IN = ROOT / "tests" / "support" / "tensorrt_stand_in.cc"
LIBRARY = "libedgekit_tensorrt.so"
STEPS = [f"{percent} %" for percent in range(0, 101, 20)]
FEW = BenchPlan(warmup=1, runs=2, seconds=0.0)
NO_COMPILER = ("g++", "c++", "clang++")


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stubs, where the device finds them; tests change them."""
    return tmp_path_factory.mktemp("headers") / "include"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, headers: Path) -> Iterator[SshServer]:
    environment = f"TENSORRT_INCLUDE={headers}"
    with ssh_server(tmp_path_factory.mktemp("ssh"), environment=environment) as running:
        running.connect().close()
        yield running


@pytest.fixture(autouse=True)
def stubs(headers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    shutil.rmtree(headers, ignore_errors=True)
    shutil.copytree(STUBS, headers)


def built(folder: Path, elements: int = 8, *, local: bool = False) -> Bundle:
    """A ReLU for TensorRT, on a board that is this machine's like."""
    folder.mkdir(exist_ok=True)
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="/body/Relu")]
    onnx.save(onnx_model(nodes, {"x": [1, elements]}, ["y"], {}), folder / "model.onnx")
    board = load_board("local")
    if not local:
        board = replace(board, name="desk", kind="linux")
    plan = OffloadPlan(("tensorrt",), rates=EVERYTHING_PAYS)
    source = open_model(folder / "model.onnx")
    request = BuildRequest(source, board, load_toolchain("host"), offload=plan)
    return build(request, folder / "bundle", use_cache=False, isolated=False).bundle


def deployed(bundle: Bundle, server: SshServer) -> list[Event]:
    told: list[Event] = []
    device = SshDevice(server.entry(), load_toolchain("host"), 120, server.known_hosts)
    deploy_bundle(bundle, device, DeployPlan(bench=None), Events(told.append))
    return told


def refused(bundle: Bundle, server: SshServer) -> EdgekitError:
    with pytest.raises(EdgekitError) as caught:
        deployed(bundle, server)
    assert caught.value.hint
    return caught.value


def compilations(told: list[Event]) -> list[str]:
    return [
        event.result
        for event in told
        if isinstance(event, StageEnded) and event.title.startswith("compile for TensorRT")
    ]


def place_of(bundle: Bundle, server: SshServer) -> Path:
    return server.root / "models" / bundle.digest


@contextmanager
def stand_in() -> Iterator[None]:
    """What is built meanwhile has the stand-in's source."""
    source = with_own_headers(STAND_IN)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgekit.backends.tensorrt.source.runner_source", lambda: source)
        yield


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The flags with the source that calls TensorRT."""
    return built(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with stand_in():
        return built(tmp_path_factory.mktemp("one"), 16)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with stand_in():
        return built(tmp_path_factory.mktemp("other"), 24)


def test_a_device_compiles_the_real_source_and_says_which_library_it_has_not(
    real: Bundle, server: SshServer
) -> None:
    (runner,) = real.manifest.runners

    error = refused(real, server)

    assert (runner.built, runner.version) == ("device", "")
    assert not (real.path / LIBRARY).exists()
    assert "this device has no libnvinfer.so.10" in error.message
    assert (place_of(real, server) / LIBRARY).read_bytes()[:4] == b"\x7fELF"
    assert (place_of(real, server) / "edgekit_tensorrt.log").exists()


def test_a_device_runs_what_it_compiled_and_compiles_it_once(
    one: Bundle, other: Bundle, server: SshServer
) -> None:
    first, second, third = (deployed(each, server) for each in (one, one, other))

    assert compilations(first) == ["TensorRT 10.99.0"]
    assert compilations(second) == ["it exists already"]
    assert compilations(third) == ["it was compiled before"]


def test_how_far_a_region_is_is_shown_while_it_gets_ready(one: Bundle, server: SshServer) -> None:
    told = deployed(one, server)

    (region,) = one.manifest.regions
    work = [e.detail for e in told if isinstance(e, StageProgress) and "prepare" in e.title]
    assert work == [f"{region.name}: {step}" for step in STEPS]


def test_other_headers_are_another_library(one: Bundle, server: SshServer, headers: Path) -> None:
    deployed(one, server)
    version = headers / "NvInferVersion.h"
    version.write_text(version.read_text().replace("PATCH 0", "PATCH 7"))

    assert compilations(deployed(one, server)) == ["TensorRT 10.99.7"]


def test_a_library_that_is_gone_or_damaged_is_put_back_before_a_rollback(
    one: Bundle, other: Bundle, server: SshServer
) -> None:
    for each in (one, other):
        deployed(each, server)
    (place_of(one, server) / LIBRARY).unlink()
    device = SshDevice(server.entry(), load_toolchain("host"), 120, server.known_hosts)

    report = rollback(device, one.manifest.model.name, to=one.digest)

    assert report.version.record.digest == one.digest
    assert report.seconds is not None
    assert (place_of(one, server) / LIBRARY).exists()


def test_headers_that_are_missing_are_named_and_how_to_get_them(
    real: Bundle, server: SshServer, headers: Path
) -> None:
    (headers / "NvOnnxParser.h").unlink()

    error = refused(real, server)

    assert isinstance(error, DeviceError)
    assert "desk lacks NvOnnxParser.h" in error.message
    assert "libnvonnxparsers-dev" in str(error.hint)
    assert "TENSORRT_INCLUDE" in str(error.hint)


def test_what_does_not_compile_is_told_with_the_region_and_a_log(
    real: Bundle, server: SshServer, headers: Path
) -> None:
    (place_of(real, server) / LIBRARY).unlink(missing_ok=True)
    with (headers / "NvInfer.h").open("a") as file:
        file.write("#error of another version\n")

    error = refused(real, server)

    assert isinstance(error, BuildError)
    assert "the region of nn.relu does not compile on desk" in error.message
    assert "of another version" in error.message
    log = place_of(real, server) / "edgekit_tensorrt.log"
    assert str(log) in str(error.hint)
    assert "of another version" in log.read_text()
    assert not (place_of(real, server) / LIBRARY).exists()


def test_a_device_without_a_compiler_says_both_ways_on(
    real: Bundle, headers: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name not in NO_COMPILER and not os.path.lexists(programs / program.name):
                (programs / program.name).symlink_to(program)
    environment = f"TENSORRT_INCLUDE={headers} PATH={programs}"
    with ssh_server(tmp_path_factory.mktemp("ssh"), environment=environment) as server:
        server.connect().close()

        error = refused(real, server)

    assert isinstance(error, DeviceError)
    assert "desk has no C++ compiler" in error.message
    assert "apt-get install g++" in str(error.hint)
    assert "TENSORRT_INCLUDE" in str(error.hint)


def test_with_headers_here_the_bundle_has_the_library_and_the_source(
    server: SshServer, headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORRT_INCLUDE", str(STUBS))
    with stand_in():
        bundle = built(tmp_path / "one", 56)
    (runner,) = bundle.manifest.runners
    shutil.rmtree(headers)  # the device needs none

    told = deployed(bundle, server)

    assert (runner.built, runner.version) == ("host", "10.99.0")
    assert (bundle.path / LIBRARY).is_file()
    assert (bundle.path / runner.source).read_text().startswith("// In the place of")
    assert not compilations(told)


def test_headers_that_do_not_fit_here_are_told_with_the_region(
    headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORRT_INCLUDE", str(headers))
    with (headers / "NvInfer.h").open("a") as file:
        file.write("#error of another version\n")

    with pytest.raises(BuildError, match=r"the region of /body/Relu does not compile") as caught:
        built(tmp_path / "one")

    assert "10.99.0" in caught.value.message
    assert any("of another version" in line for line in caught.value.details)


def test_this_machine_has_to_have_the_headers_itself(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match=r"there is no NvInfer\.h"):
        built(tmp_path / "one", local=True)


def test_an_exported_application_has_the_source(real: Bundle, tmp_path: Path) -> None:
    board = replace(real.manifest.board, name="local", kind="local")

    export(replace(real, manifest=replace(real.manifest, board=board)), tmp_path / "app")

    source = tmp_path / "app" / "runner" / "edgekit_tensorrt.cc"
    assert "nvinfer1" in source.read_text()
    assert "runner/edgekit_*.cc" in (tmp_path / "app" / "CMakeLists.txt").read_text()
    assert not os.path.lexists(tmp_path / "app" / "lib" / LIBRARY)
    (unit,) = (tmp_path / "app").glob("*.service.in")
    text = unit.read_text()
    assert text.index("PrivateDevices=yes") < text.index("PrivateDevices=no")


def test_this_machine_shows_how_far_a_region_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORRT_INCLUDE", str(STUBS))
    with stand_in():
        bundle = built(tmp_path / "one", local=True)
    told: list[Event] = []

    deploy_bundle(bundle, LocalDevice(), DeployPlan(bench=FEW), Events(told.append))

    work = [e.detail for e in told if isinstance(e, StageProgress) and "prepare" in e.title]
    assert [detail.rpartition(": ")[2] for detail in work] == STEPS * 2  # compared, then measured
