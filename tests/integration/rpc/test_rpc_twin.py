"""RPC with an emulated Raspberry Pi 4: another architecture, another kernel, a network between."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.building import request_for, write_model
from support.needs import TWIN, needs
from support.ports import free_port
from support.rpc_lab import Process, environment_in, eventually, free_devices
from support.twins import edgekit_command, pause, resume, twins_in

from edgekit.building.build import build
from edgekit.profiles.board import load_board
from edgekit.rpc.protocol import TrackerAddress
from edgekit.rpc.session import SessionLost, open_session
from edgekit.twin.machine import status, up

pytestmark = [
    needs("sshd"),
    pytest.mark.slow,
    needs(*TWIN),
]

KEY = "rpi4"
TWIN = "served"


@dataclass(frozen=True)
class Served:
    """A twin that serves."""

    tracker: TrackerAddress
    server: Process
    model: Path
    library: Path

    def is_free(self) -> bool:
        return free_devices(self.tracker, KEY) == 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, twin_cache: Path) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("rpc")
    with twins_in(twin_cache):
        environment = environment_in(folder)
        up(TWIN, load_board("rpi4"))
        model = write_model(folder / "model.onnx")
        bundle = build(
            request_for(model, "rpi4"), folder / "bundle", use_cache=False, isolated=False
        ).bundle
        devices = folder / "config" / "edgekit" / "devices.toml"
        devices.parent.mkdir(parents=True)
        devices.write_text(f'schema = 1\n[devices.{TWIN}]\nboard = "rpi4"\ntwin = true\n')
        port = free_port()
        tracker = Process(
            edgekit_command("rpc", "tracker", "--port", str(port), "--json"),
            environment,
            folder / "tracker.log",
        )
        try:
            server = Process(
                edgekit_command("rpc", "serve", "--device", TWIN, "--json"),
                environment,
                folder / "serve.log",
            )
            try:
                yield Served(TrackerAddress("127.0.0.1", port), server, model, bundle.library)
            finally:
                server.end()
        finally:
            tracker.end()


def assert_right_numbers(served: Served) -> None:
    from edgekit.base.tvm_compat import load_tvm

    tvm = load_tvm()
    image = np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)
    oracle = onnxruntime.InferenceSession(served.model, providers=["CPUExecutionProvider"])
    (expected,) = oracle.run(None, {"image": image})
    with open_session(KEY, 300, tracker=served.tracker, wait=240) as session:
        session.upload(str(served.library))
        made = tvm.runtime.tensor(np.zeros_like(expected), session.cpu(0))
        run = session.load_module(served.library.name)["run"]
        run(tvm.runtime.tensor(image, session.cpu(0)), made)
        output = made.numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    eventually(served.is_free)


def test_an_emulated_board_serves_and_its_numbers_are_onnxruntimes(served: Served) -> None:
    eventually(served.is_free)

    assert_right_numbers(served)


def test_a_board_that_stops_in_a_session_is_told_within_seconds_and_comes_back(
    served: Served,
) -> None:
    with (
        pytest.raises(SessionLost),
        open_session(KEY, 300, tracker=served.tracker, wait=240) as session,
    ):
        pause(TWIN)
        session.upload(str(served.library))
    # The session may hear of the broken connection a moment before the server says so.
    eventually(lambda: f"{TWIN} stopped answering" in served.server.errors())

    resume(TWIN)

    eventually(served.is_free)
    assert_right_numbers(served)


def test_a_board_that_loses_its_power_in_a_session_serves_again_after_its_start(
    served: Served,
) -> None:
    with (
        pytest.raises(SessionLost),
        open_session(KEY, 300, tracker=served.tracker, wait=240) as session,
    ):
        pid = status(TWIN).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        session.upload(str(served.library))

    up(TWIN, load_board("rpi4"))

    eventually(served.is_free)
    assert_right_numbers(served)


def test_a_board_that_comes_back_on_another_port_is_found_again(served: Served) -> None:
    eventually(served.is_free)
    before = status(TWIN)
    assert before.access is not None
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    eventually(lambda: not served.is_free())
    with socket.create_server(("127.0.0.1", before.access.port)):
        moved = up(TWIN, load_board("rpi4")).access
        assert moved.port != before.access.port

        eventually(served.is_free)
        assert_right_numbers(served)
