"""TVM's stock clients, our tracker, and an agent behind a real SSH server."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import psutil
import pytest
from support.building import request_for, write_embedding
from support.examples import first_of
from support.local_bundles import built_bundle, with_patched_kernels
from support.needs import needs
from support.ports import free_port
from support.rpc_lab import Lab, eventually, rpc_lab

from edgekit.base.errors import DeviceError
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.rpc.protocol import NoneFree
from edgekit.rpc.session import SessionLost, SessionTimedOut, open_session
from edgekit.rpc.versions import TvmMismatchError

pytestmark = needs("sshd")

KEY = "desk"

STOCK_CLIENT = """
import sys
import numpy as np
import tvm
from tvm import rpc

port, key, library, given, result, wanted = sys.argv[1:]
remote = rpc.connect_tracker("127.0.0.1", int(port)).request(key, session_timeout=600)
remote.upload(library)
module = remote.load_module("model.so")
image = tvm.runtime.tensor(np.load(given), remote.cpu(0))
output = tvm.runtime.tensor(np.zeros_like(np.load(wanted)), remote.cpu(0))
module["run"](image, output)
np.save(result, output.numpy())
timed = module.time_evaluator("run", remote.cpu(0), number=2, repeat=2)(image, output)
assert len(timed.results) == 2 and min(timed.results) > 0
"""


@dataclass(frozen=True)
class Built:
    model: Path
    bundle: Bundle


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(*built_bundle(tmp_path_factory.mktemp("built")))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with rpc_lab(tmp_path_factory.mktemp("rpc")) as running:
        yield running


@pytest.fixture
def served(lab: Lab) -> Lab:
    """Yield a lab with a tracker and a device that is free."""
    lab.start_tracker()
    lab.serve(KEY)
    eventually(lambda: lab.free(KEY) == 1)
    return lab


def run_main(session: Any, bundle: Bundle) -> np.ndarray:
    import tvm

    session.upload(str(bundle.library))
    (image,) = bundle.reference_inputs().values()
    (wanted,) = bundle.reference_outputs().values()
    output = tvm.runtime.tensor(np.zeros_like(wanted), session.cpu(0))
    session.load_module("model.so")["run"](tvm.runtime.tensor(image, session.cpu(0)), output)
    made: np.ndarray = output.numpy()
    return made


def stock_client(served: Lab, bundle: Bundle, wanted: np.ndarray, folder: Path) -> list[str]:
    """The command of a client that computes with image.npy; `wanted` has the output's form."""
    (folder / "client.py").write_text(STOCK_CLIENT)
    np.save(folder / "wanted.npy", wanted)
    files = (bundle.library, folder / "image.npy", folder / "out.npy", folder / "wanted.npy")
    return [sys.executable, str(folder / "client.py"), str(served.port), KEY, *map(str, files)]


def assert_usable(lab: Lab, bundle: Bundle) -> None:
    with open_session(KEY, tracker=lab.address, wait=60) as session:
        output = run_main(session, bundle)
    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    eventually(lambda: lab.free(KEY) == 1)


def test_a_plain_script_with_the_stock_client_gets_onnxruntimes_numbers(
    served: Lab, built: Built, tmp_path: Path
) -> None:
    image = np.random.default_rng(7).standard_normal((1, 3, 8, 8)).astype(np.float32)
    oracle = onnxruntime.InferenceSession(built.model, providers=["CPUExecutionProvider"])
    (expected,) = oracle.run(None, {"image": image})
    np.save(tmp_path / "image.npy", image)

    subprocess.run(stock_client(served, built.bundle, expected, tmp_path), check=True, timeout=600)

    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-4, atol=1e-5)
    eventually(lambda: served.free(KEY) == 1)


def test_a_device_that_serves_is_registered_with_a_port_of_loopback_here(served: Lab) -> None:
    report = served.server_report(KEY)

    assert report["host"] == "127.0.0.1"
    assert report["tracker"] == {"host": "127.0.0.1", "port": served.port}
    assert served.status(KEY)["busy"] == 0


def test_a_busy_device_is_shown_as_busy_and_waiting_for_it_ends(served: Lab, built: Built) -> None:
    with open_session(KEY, tracker=served.address):
        eventually(lambda: served.status(KEY)["busy"] == 1)
        with (
            pytest.raises(NoneFree, match="became free within 1 s"),
            open_session(KEY, tracker=served.address, wait=1),
        ):
            pass

    assert_usable(served, built.bundle)


def test_an_unknown_key_is_a_sentence_and_not_an_endless_wait(served: Lab) -> None:
    with (
        pytest.raises(DeviceError, match="no device is registered with the key dusk") as caught,
        open_session("dusk", tracker=served.address),
    ):
        pass

    assert caught.value.hint == "did you mean desk?"


@pytest.mark.parametrize(
    ("constant", "what"), [("TVM_VERSION", "TVM 0"), ("TVM_FFI_VERSION", "tvm-ffi 0")]
)
def test_another_tvm_over_there_is_told_before_the_first_call(
    served: Lab, built: Built, monkeypatch: pytest.MonkeyPatch, constant: str, what: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"edgekit.rpc.versions.{constant}", "0.28.0")
        with (
            pytest.raises(TvmMismatchError, match=rf"runs {what}.*this edgekit uses 0\.28\.0"),
            open_session(KEY, tracker=served.address),
        ):
            pytest.fail("the block was entered")

    assert_usable(served, built.bundle)


def test_a_session_that_is_killed_is_told_and_the_device_is_free_again(
    served: Lab, built: Built
) -> None:
    with (
        pytest.raises(SessionLost, match="the session on desk was lost"),
        open_session(KEY, tracker=served.address) as session,
    ):
        (agent,) = served.agents()
        eventually(lambda: bool(served.children(agent)))
        for child in served.children(agent):
            os.kill(child, signal.SIGKILL)
        run_main(session, built.bundle)

    assert_usable(served, built.bundle)


def test_a_model_that_never_ends_ends_with_its_session(
    served: Lab, built: Built, tmp_path: Path
) -> None:
    endless = with_patched_kernels(built.bundle, tmp_path / "endless", forever=True)

    with (
        pytest.raises(SessionTimedOut, match="exceeded its 3 s"),
        open_session(KEY, 3, tracker=served.address) as session,
    ):
        run_main(session, endless)

    assert_usable(served, built.bundle)


def test_a_client_that_is_killed_while_its_model_runs_frees_the_device(
    served: Lab, built: Built, tmp_path: Path
) -> None:
    endless = with_patched_kernels(built.bundle, tmp_path / "endless", forever=True)
    image = np.zeros((1, 3, 8, 8), np.float32)
    np.save(tmp_path / "image.npy", image)
    (wanted,) = built.bundle.reference_outputs().values()
    client = subprocess.Popen(stock_client(served, endless, wanted, tmp_path))
    (agent,) = served.agents()
    eventually(lambda: any(seconds_of_cpu(child) > 1 for child in served.children(agent)))
    client.kill()
    client.wait()

    assert_usable(served, built.bundle)


def seconds_of_cpu(process: int) -> float:
    try:
        return float(psutil.Process(process).cpu_times().user)
    except psutil.NoSuchProcess:
        return 0.0


def test_an_agent_that_is_killed_in_a_session_is_started_again(served: Lab, built: Built) -> None:
    with (
        pytest.raises(SessionLost),
        open_session(KEY, tracker=served.address) as session,
    ):
        (agent,) = served.agents()
        children = served.children(agent)
        os.kill(agent, signal.SIGKILL)
        eventually(lambda: not served.alive([agent, *children]))
        run_main(session, built.bundle)

    eventually(lambda: served.free(KEY) == 1)
    assert_usable(served, built.bundle)
    eventually(lambda: "the agent on desk ended: SIGKILL" in served.servers[KEY].errors())


def test_a_connection_that_drops_ends_the_session_and_is_made_again(
    served: Lab, built: Built
) -> None:
    with (
        pytest.raises(SessionLost),
        open_session(KEY, tracker=served.address) as session,
    ):
        (agent,) = served.agents()
        children = served.children(agent)
        served.ssh.drop_connections()
        eventually(lambda: not served.alive([agent, *children]))
        run_main(session, built.bundle)

    eventually(lambda: served.free(KEY) == 1)
    assert_usable(served, built.bundle)
    eventually(lambda: "the connection to desk was lost" in served.servers[KEY].errors())


def test_a_tracker_that_dies_is_started_again_and_the_device_registers(
    served: Lab, built: Built
) -> None:
    (worker,) = served.children(served.tracker.pid)

    os.kill(worker, signal.SIGKILL)

    eventually(lambda: worker not in served.children(served.tracker.pid))
    eventually(lambda: served.free(KEY) == 1)
    assert_usable(served, built.bundle)


def test_a_device_registers_with_a_tracker_that_is_stopped_and_started_anew(
    served: Lab, built: Built
) -> None:
    assert served.json("stop")["stopped"]["port"] == served.port
    eventually(lambda: not served.tracker.is_running())
    eventually(lambda: "does not reach the tracker" in served.servers[KEY].errors())

    served.start_tracker()

    eventually(lambda: served.free(KEY) == 1)
    assert_usable(served, built.bundle)


@pytest.mark.slow
def test_a_device_that_hangs_is_noticed_and_used_again_when_it_is_back(
    served: Lab, built: Built
) -> None:
    # sshd keeps a connection in a process of its own, and its children may be several.
    stopped = [pid for session in served.ssh.sessions() for pid in served.family(session)]
    with (
        pytest.raises(SessionLost),
        open_session(KEY, tracker=served.address, timeout=300) as session,
    ):
        signal_all(stopped, signal.SIGSTOP)
        run_main(session, built.bundle)
    # The session may hear of the broken connection a moment before the server says so.
    eventually(lambda: "desk stopped answering" in served.servers[KEY].errors())

    signal_all(stopped, signal.SIGCONT)

    eventually(lambda: served.free(KEY) == 1)
    assert_usable(served, built.bundle)


def signal_all(pids: list[int], number: int) -> None:
    """A remote shell may have ended meanwhile."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.parametrize("number", first_of(signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
def test_nothing_is_left_of_a_device_server_however_it_ends(served: Lab, number: int) -> None:
    (agent,) = served.agents()

    served.servers[KEY].end(number)

    eventually(lambda: not served.alive([agent]))
    eventually(lambda: served.find_status(KEY) is None)
    eventually(lambda: not list((served.ssh.root / "runs").iterdir()))


@pytest.mark.parametrize("number", first_of(signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
def test_nothing_is_left_of_a_tracker_however_it_ends(lab: Lab, number: int) -> None:
    lab.start_tracker()
    workers = lab.children(lab.tracker.pid)

    lab.tracker.end(number)

    assert workers
    eventually(lambda: not lab.alive(workers))
    failed = lab.run("status")
    assert failed.returncode == 8
    assert "no tracker is running on this host" in failed.stderr


def test_a_second_tracker_is_the_first(lab: Lab) -> None:
    lab.start_tracker()

    found = lab.json("tracker")

    assert found == {
        "host": "127.0.0.1",
        "port": lab.port,
        "pid": lab.tracker.pid,
        "already_running": True,
    }
    refused = lab.run("tracker", "--port", str(free_port()))
    assert refused.returncode == 2
    assert f"a tracker is running already, at 127.0.0.1:{lab.port}" in refused.stderr


def test_a_port_that_is_taken_is_a_sentence(lab: Lab) -> None:
    lab.stop_tracker()

    failed = lab.run("tracker", "--port", str(lab.ssh.port))

    assert failed.returncode == 8
    assert f"port {lab.ssh.port} is taken" in failed.stderr


def test_serving_without_a_tracker_says_how_to_start_one(lab: Lab) -> None:
    lab.stop_tracker()

    failed = lab.run("serve", "--device", "desk")

    assert failed.returncode == 8
    assert "edgekit rpc tracker" in failed.stderr


def test_a_direct_client_needs_no_tracker(lab: Lab, built: Built) -> None:
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    from tvm import rpc

    lab.stop_tracker()
    report = lab.serve("alone", "--direct")

    output = run_main(rpc.connect(report["host"], report["port"], "alone"), built.bundle)

    (expected,) = built.bundle.reference_outputs().values()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    lab.servers["alone"].end(signal.SIGTERM)


def test_an_error_of_what_runs_there_stays_what_it_is(served: Lab, built: Built) -> None:
    with open_session(KEY, tracker=served.address) as session:
        with pytest.raises(RuntimeError, match="not-there"):
            session.load_module("not-there.so")
        run_main(session, built.bundle)

    assert_usable(served, built.bundle)


def test_an_index_outside_of_a_tensor_is_named_and_the_session_goes_on(
    served: Lab, tmp_path: Path
) -> None:
    import tvm

    model = write_embedding(tmp_path / "model.onnx")
    bundle = build(request_for(model), tmp_path / "bundle", use_cache=False, isolated=False).bundle
    with open_session(KEY, tracker=served.address) as session:
        session.upload(str(bundle.library))
        run = session.load_module("model.so")["run"]
        (wanted,) = bundle.reference_outputs().values()
        output = tvm.runtime.tensor(np.zeros_like(wanted), session.cpu(0))

        def rows(*ids: int) -> np.ndarray:
            run(tvm.runtime.tensor(np.array(ids), session.cpu(0)), output)
            return output.numpy()  # type: ignore[no-any-return]

        for wrong in (5, -6, 2**40, -(2**63)):
            told = f"'ids' holds the index {wrong}, which is outside of -5 to 4"
            with pytest.raises(Exception, match=told):
                rows(0, wrong, 1)
        np.testing.assert_array_equal(rows(-1, 0, 4)[:, 0], [16, 0, 16])


def test_a_device_that_is_lost_as_it_is_handed_out_is_passed_over(
    served: Lab, built: Built
) -> None:
    """A port without a listener is registered before the device is free again."""
    with socket.create_connection(("127.0.0.1", served.port)) as liar:
        with open_session(KEY, tracker=served.address):
            eventually(lambda: served.status(KEY)["busy"] == 1)
            offer_a_dead_port(liar)
        with open_session(KEY, tracker=served.address) as session:
            run_main(session, built.bundle)


def offer_a_dead_port(liar: socket.socket) -> None:
    magic = struct.pack("<i", 0x2F271)
    liar.sendall(magic)
    assert liar.recv(4) == magic
    for words in (
        [5, {"key": f"server:{KEY}", "addr": ["127.0.0.1", 1]}],
        [3, KEY, [1, f"{KEY}:0.5"], "127.0.0.1"],
    ):
        data = json.dumps(words).encode()
        liar.sendall(struct.pack("<i", len(data)) + data)
    eventually(lambda: len(liar.recv(64, socket.MSG_PEEK)) >= 10)


def test_a_host_key_that_changed_ends_the_device_server(served: Lab) -> None:
    trusted = served.folder / "config" / "edgekit" / "known_hosts"
    before = trusted.read_text()
    host, kind, _ = before.split()[:3]
    other = (served.ssh.folder / "user.pub").read_text().split()[1]
    trusted.write_text(f"{host} {kind} {other}\n")
    try:
        served.ssh.drop_connections()
        eventually(lambda: not served.servers[KEY].is_running())
    finally:
        trusted.write_text(before)

    assert served.servers[KEY].end() == 8
    eventually(lambda: served.ssh.fingerprint in served.servers[KEY].errors())
