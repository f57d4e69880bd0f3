"""A model on emulated microcontrollers, through the command line: the story of docs/devices.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.c_networks import several_inputs
from support.microcontrollers import BOARDS
from support.needs import MICROCONTROLLERS, needs
from support.noisy_line import Harm, noisy_line
from support.ssh_server import ssh_server
from support.twins import edgekit, edgekit_json, remove_all_twins, twins_in

from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.devices.choice import device_for
from edgekit.devices.serial.device import SerialSession
from edgekit.profiles.board import load_board
from edgekit.twin import qemu
from edgekit.twin.processes import process_of, twin_folder

pytestmark = needs("sshd", *MICROCONTROLLERS)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mcu")
    with pytest.MonkeyPatch.context() as patch, twins_in(folder / "cache"):
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.chdir(folder)
        yield folder
        remove_all_twins()


@pytest.fixture(scope="module")
def model(cache: Path) -> Path:
    onnx.save(several_inputs(), cache / "several.onnx")
    return cache / "several.onnx"


_QUICK = "mps2-an386"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name == _QUICK else pytest.mark.slow) for name in BOARDS
    ],
)
def deployed(request: pytest.FixtureRequest, model: Path, cache: Path) -> tuple[str, Path, Any]:
    board = str(request.param)
    out = cache / f"on-{board}"
    return (
        board,
        out,
        edgekit_json("deploy", str(model), "--board", board, "--twin", "-o", str(out)),
    )


def test_a_deployment_is_verified_and_counts_instructions(deployed: tuple[str, Path, Any]) -> None:
    board, _, report = deployed
    assert report["device"] == board
    assert report["verification"]["passed"] is True
    counted = report["bench"]["counted"]
    assert counted["unit"] == "instructions"
    assert counted["clock"] is None
    assert counted["minimum"] == counted["maximum"] > 0
    steps = sum(step["count"] for step in counted["steps"])
    assert steps == pytest.approx(counted["median"], abs=80 * len(counted["steps"]))
    assert report["installed"]["sent"] == report["installed"]["model"] > 0


def test_what_is_there_is_used_without_writing_it_again(deployed: tuple[str, Path, Any]) -> None:
    board, out, _ = deployed
    assert edgekit_json("flash", str(out), "--twin")["written"] == 0
    again = edgekit_json("flash", str(out), "--twin", "--again")
    assert again["written"] > 0
    assert again["board"]["core"] == load_board(board).cpu.name
    assert [m["name"] for m in again["board"]["models"]] == ["several"]
    verified = edgekit_json("verify", str(out), "--twin")
    assert verified["passed"] is True


def test_the_bench_for_people_shows_layers_and_no_time(deployed: tuple[str, Path, Any]) -> None:
    _, out, report = deployed
    shown = edgekit("bench", str(out), "--twin", "--runs", "2")
    assert shown.returncode == 0, shown.stderr
    for step in report["bench"]["counted"]["steps"]:
        assert step["name"] in shown.stdout
    assert "instructions" in shown.stdout
    assert " ms" not in shown.stdout
    assert "emulated" in shown.stdout


def test_a_session_survives_a_reset_of_the_board(deployed: tuple[str, Path, Any]) -> None:
    board, out, _ = deployed
    bundle: Bundle = open_bundle(out)
    with device_for(load_board(board), twin=True).opened(bundle) as session:
        assert isinstance(session, SerialSession)
        expected = session.run(bundle.reference_inputs()).outputs
        session.client.reset()
        again = session.run(bundle.reference_inputs()).outputs
        for name, array in bundle.reference_outputs().items():
            np.testing.assert_array_equal(again[name], expected[name])
            np.testing.assert_allclose(again[name], array, rtol=1e-4, atol=1e-5)


def test_a_twin_that_was_killed_comes_back_with_the_firmware(model: Path, cache: Path) -> None:
    out = cache / "killed"
    edgekit_json("deploy", str(model), "--board", "mps2-an386", "--twin", "-o", str(out))
    process = process_of(twin_folder("mps2-an386"))
    assert process is not None
    qemu.kill(process)
    assert qemu.wait_until_gone(process, 60)
    assert edgekit_json("twin", "status", "mps2-an386")["twins"][0]["condition"] == "died"
    assert edgekit_json("verify", str(out), "--twin")["passed"] is True


def test_a_device_on_a_line_is_added_used_and_watched(model: Path, cache: Path) -> None:
    port = edgekit_json("twin", "up", "mps3-an547")["serial"]
    out = cache / "line"
    edgekit_json("deploy", str(model), "--board", "mps3-an547", "--twin", "-o", str(out))
    added = edgekit_json("device", "add", "bench-7", "--board", "mps3-an547", "--port", port)
    assert added["port"] == port
    listed = edgekit_json("device", "list")
    assert {"name": "bench-7", "address": port}.items() <= listed[0].items()

    assert edgekit_json("verify", str(out), "--device", "bench-7")["passed"] is True
    seen = edgekit("monitor", "--device", "bench-7", "--seconds", "5")
    assert "on a Cortex-M55 at 32 MHz, 1 model" in seen.stdout
    # Nobody told edgekit that this one is emulated: it can't be written to over a line.
    refused = edgekit("flash", str(out), "--device", "bench-7", "--again")
    assert refused.returncode != 0
    assert "is not emulated" in refused.stderr
    for command in ("versions", "logs"):
        assert "is a microcontroller" in edgekit(command, "--device", "bench-7").stderr
    assert edgekit("device", "remove", "bench-7").returncode == 0


@pytest.mark.slow
def test_a_device_on_another_machines_line_is_used_through_that(model: Path, cache: Path) -> None:
    line = edgekit_json("twin", "up", "mps3-an547")["serial"]
    out = cache / "via"
    edgekit_json("deploy", str(model), "--board", "mps3-an547", "--twin", "-o", str(out))
    with noisy_line(line, Harm()) as port, ssh_server(cache / "lab") as server:
        where = f"{server.user}@127.0.0.1:{server.port}"
        words = ("device", "add", "far", "--board", "mps3-an547", "--port", port, "--via", where)
        unknown = edgekit(*words, "--key", server.key)
        assert unknown.returncode != 0
        assert "host key" in unknown.stderr
        added = edgekit_json(*words, "--key", server.key, "--fingerprint", server.fingerprint)
        assert (added["port"], added["host"]) == (port, where)
        (listed,) = (d for d in edgekit_json("device", "list") if d["name"] == "far")
        assert listed["address"] == f"{port} on {where}"

        assert edgekit_json("device", "check", "far")["host"] == where

        assert edgekit_json("verify", str(out), "--device", "far")["passed"] is True
        assert edgekit_json("bench", str(out), "--device", "far")["device"] == "far"
        assert edgekit_json("flash", str(out), "--device", "far")["written"] == 0
        assert "1 model" in edgekit("monitor", "--device", "far", "--seconds", "5").stdout
        none = f"/dev/ttyNONE{os.getpid()}"
        wrong = edgekit(*words[:6], none, *words[7:], "--key", server.key, "--force")
        assert wrong.returncode == 0
        assert f"there is no serial port {none} on" in wrong.stderr
        assert edgekit("device", "check", "far").returncode != 0
        edgekit_json(*words, "--key", server.key, "--force")
        again = edgekit("flash", str(out), "--device", "far", "--again")
        assert "can only be written on" in " ".join(again.stderr.split())
    gone = edgekit("verify", str(out), "--device", "far")
    assert gone.returncode != 0
    assert "127.0.0.1" in gone.stderr
    assert edgekit("device", "remove", "far").returncode == 0


def test_mistakes_are_told(model: Path, cache: Path) -> None:
    for arguments, said in (
        (("device", "add", "x", "--board", "rpi4", "--port", "/dev/ttyS0"), "over SSH, not over"),
        (("device", "add", "x", "--board", "stm32f405", "pi@host"), "bare-metal board"),
        (("device", "add", "x", "--board", "stm32f405", "--via", "pi@host"), "no address"),
        (("device", "add", "x", "--board", "stm32f405"), "no address of the device is given"),
        (("device", "add", "x", "--board", "stm32f405", "--port", "loop://"), "no serial port"),
        (("twin", "up", "stm32f746g-disco"), "no emulator has the memory"),
        (("twin", "up", "mps2-an386", "--icount"), "for twins of Linux boards"),
        (("deploy", str(model), "--board", "nrf52840-dk"), "--port /dev/ttyACM0 adds one"),
        (("monitor", "--board", "rpi4", "--twin"), "neither firmware nor a serial line"),
        (("deploy", str(model), "--board", "stm32f405", "--twin", "--quick-tune", "5s"), "in C"),
        (("build", str(model), "--board", "stm32f405", "--quick-tune", "5s"), "leave it out"),
    ):
        answer = edgekit(*arguments)
        assert answer.returncode != 0
        assert said in " ".join(answer.stderr.split()), answer.stderr


def test_a_model_with_open_shapes_is_refused_before_a_twin_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = several_inputs()
    opened.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(opened, tmp_path / "open.onnx")
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))

    refused = edgekit("deploy", str(tmp_path / "open.onnx"), "--board", "mps2-an386", "--twin")

    assert refused.returncode != 0
    assert "the shape of an input is open" in refused.stderr
    assert edgekit_json("twin", "status")["twins"] == []


def test_two_twins_at_once_do_not_meet(model: Path, cache: Path) -> None:
    ports = {
        edgekit_json("twin", "up", "mps2-an386", "--name", name)["serial"] for name in ("a", "b")
    }
    assert len(ports) == 2
    assert edgekit("twin", "down", "a", "b", "--delete").returncode == 0
