"""What can go wrong with a board, done to an emulated one: each time the user gets one sentence and
a hint, and the board can be used again."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from support.building import request_for, write_model
from support.local_bundles import copied, resealed, with_c_library, with_patched_kernels
from support.needs import TWIN, needs
from support.on_device import bench_on, run_on
from support.patience import stopped_at
from support.rpc_lab import eventually
from support.twins import COMMAND_SECONDS, edgekit_command, on_twin, twins_in

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Event, Events, StageEnded, StageProgress
from edgekit.base.files import sha256_file
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.emulated import emulated_device
from edgekit.devices.linux import signs_of_life, transfer
from edgekit.devices.linux.ssh import SshDevice
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.twin.access import Access
from edgekit.twin.machine import machines_dir, status, up
from edgekit.twin.qemu import CONSOLE, QMP_SOCKET
from edgekit.twin.qmp import connected

BOARD = load_board("rpi4")
TOOLCHAIN = load_toolchain(BOARD.toolchain)
NAME = "rpi4"
CROSS_COMPILER = "aarch64-linux-gnu-gcc"

pytestmark = [
    pytest.mark.slow,
    needs(*TWIN),
]


@dataclass(frozen=True)
class Lab:
    folder: Path
    model: Path
    bundle: Bundle
    access: Access

    def device(self, timeout: float = 120) -> SshDevice:
        """As --twin finds it: started again where it does not run."""
        return emulated_device(NAME, BOARD, timeout)

    def on_board(self, command: str) -> str:
        return on_twin(self.access, command)

    def drop_connections(self) -> None:
        """Every sshd of the twin that serves a connection, that of this command too."""
        command = "sudo pkill -KILL -f '^sshd(-session)?: edgekit'"
        subprocess.run(
            self.access.command(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
        )

    def pull_the_plug(self) -> None:
        pid = status(NAME).pid
        assert pid is not None
        emulator = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(emulator, signal.SIGKILL)
            select.select([emulator], [], [])  # it has gone, with all that it held
        finally:
            os.close(emulator)

    def failure(
        self, bundle: Bundle, device: SshDevice | None = None, events: Events = SILENT
    ) -> DeviceError:
        with pytest.raises(DeviceError) as caught:
            run_on(device or self.device(), bundle, events=events)
        assert_told_well(caught.value)
        return caught.value

    def assert_usable(self) -> None:
        outputs = run_on(self.device(), self.bundle).outputs
        for name, expected in self.bundle.reference_outputs().items():
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)
        eventually(lambda: "edgekit-agent" not in self.on_board("ps -A -o comm="))

    def make_read_only(self) -> bool:
        """Not while anything has a file open to write to: what has just ended, for a moment yet."""
        said = self.on_board("sync; sudo mount -o remount,ro / && echo done || true")
        return "done" in said


def assert_told_well(error: DeviceError) -> None:
    """One sentence, and what to do."""
    assert "\n" not in error.message
    assert len(error.message) < 200
    assert error.hint


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, twin_cache: Path) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("faults")
    with twins_in(twin_cache):
        model = write_model(folder / "model.onnx")
        bundle = build(
            request_for(model, BOARD.name), folder / "bundle", use_cache=False, isolated=False
        ).bundle
        lab = Lab(folder, model, bundle, up(NAME, BOARD).access)
        lab.assert_usable()
        yield lab


def large(bundle: Bundle, folder: Path, size: int = 6 << 20) -> Bundle:
    """The same, with a library that takes seconds to send."""
    copied(bundle, folder)
    with (folder / "model.so").open("ab") as library:
        library.write(os.urandom(size))
    return resealed(bundle, folder)


class When(Events):
    """Does something once, in the middle of a stage."""

    def __init__(self, title: str, done: int, action: Callable[[], None]) -> None:
        super().__init__(self._listen)
        self._title, self._done, self._action = title, done, action
        self.happened = False

    def _listen(self, event: Event) -> None:
        started = isinstance(event, StageProgress) and event.title.startswith(self._title)
        if started and event.done >= self._done and not self.happened:  # type: ignore[union-attr]
            self.happened = True
            self._action()


class Sent(Events):
    """How many bytes were sent, in the words that the user sees."""

    def __init__(self) -> None:
        super().__init__(self._listen)
        self.results: list[str] = []

    def _listen(self, event: Event) -> None:
        if isinstance(event, StageEnded) and event.title.startswith("send the model"):
            self.results.append(event.result)


def in_background(lab: Lab, bundle: Bundle) -> tuple[threading.Thread, list[BaseException]]:
    """A run that does not end by itself, once the model is loaded on the twin."""
    failures: list[BaseException] = []
    device = lab.device()

    def run() -> None:
        try:
            run_on(device, bundle)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    maps = "grep -ls /model.so /proc/[0-9]*/maps || true"
    eventually(lambda: failures or lab.on_board(maps))
    assert not failures
    return thread, failures


def the_failure(thread: threading.Thread, failures: list[BaseException]) -> DeviceError:
    thread.join(timeout=COMMAND_SECONDS)
    assert not thread.is_alive()
    (error,) = failures
    assert isinstance(error, DeviceError)
    assert_told_well(error)
    return error


def test_a_full_disk_is_told_before_anything_is_sent(lab: Lab) -> None:
    bundle = large(lab.bundle, lab.folder / "full")
    lab.on_board(
        "free=$(df -k --output=avail /home | tail -n 1);"
        " sudo fallocate -l $((free - 1536))K /var/ballast"
    )
    try:
        error = lab.failure(bundle)
    finally:
        lab.on_board("sudo rm -f /var/ballast")

    assert error.message.startswith("rpi4 has 1")
    assert "free in /home/edgekit" in error.message
    assert "are needed" in error.message
    lab.assert_usable()


def test_a_file_system_that_turned_read_only_is_told(lab: Lab) -> None:
    eventually(lab.make_read_only)
    try:
        error = lab.failure(lab.bundle)
    finally:
        lab.on_board("sudo mount -o remount,rw /")

    assert "read-only" in error.message
    lab.assert_usable()


def test_a_connection_that_drops_in_a_transfer_goes_on_where_it_was(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = large(lab.bundle, lab.folder / "dropped")
    monkeypatch.setattr(transfer, "_SECONDS_BETWEEN_REPORTS", 0.0)  # or it may be all there by then
    # Up to two of them are in the connection: OpenSSH takes no more than that unread.
    events = When("send the model", 4 << 20, lab.drop_connections)

    error = lab.failure(bundle, events=events)

    assert events.happened
    assert "connection to rpi4 was lost" in error.message
    assert "the device keeps what was sent so far" in str(error.hint)
    again = Sent()
    run_on(lab.device(), bundle, events=again)
    (result,) = again.results
    assert 0 < float(result.split(" MiB")[0]) < 5
    lab.assert_usable()


def test_power_lost_in_a_transfer_costs_nothing_but_a_start(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = large(lab.bundle, lab.folder / "unplugged")
    monkeypatch.setattr(transfer, "_SECONDS_BETWEEN_REPORTS", 0.0)

    error = lab.failure(bundle, events=When("send the model", 2 << 20, lab.pull_the_plug))

    assert "connection to rpi4 was lost" in error.message
    run_on(lab.device(), bundle)
    lab.assert_usable()


def test_power_lost_right_after_a_transfer_loses_nothing_of_it(lab: Lab) -> None:
    bundle = large(lab.bundle, lab.folder / "renamed")
    run_on(lab.device(), bundle)

    lab.pull_the_plug()

    again = Sent()
    run_on(lab.device(), bundle, events=again)
    assert again.results == []
    lab.assert_usable()
    there = lab.on_board(
        "cd ~/.local/share/edgekit/objects && for f in *; do sha256sum <$f; echo $f; done"
    ).split("\n")
    hashes = {name: line.split()[0] for line, name in zip(there[:-1:2], there[1::2], strict=True)}
    whole = {name: told for name, told in hashes.items() if not name.endswith(".part")}
    assert sha256_file(bundle.path / "model.so") in whole
    assert whole == {name: name for name in whole}


def test_power_lost_while_measuring_is_told(lab: Lab) -> None:
    plan = BenchPlan(warmup=0, runs=10, seconds=60)
    device = lab.device()

    with pytest.raises(DeviceError, match="connection to rpi4 was lost") as caught:
        bench_on(device, lab.bundle, plan, When("measure on", 1, lab.pull_the_plug))

    assert_told_well(caught.value)
    lab.assert_usable()


def test_an_agent_that_is_killed_is_told(lab: Lab) -> None:
    looping = with_patched_kernels(lab.bundle, lab.folder / "killed", forever=True)
    thread, failures = in_background(lab, looping)

    lab.on_board("sudo pkill -KILL -x edgekit-agent")

    assert "crashed on rpi4 while running: SIGKILL" in the_failure(thread, failures).message
    lab.assert_usable()


def test_a_connection_that_drops_in_a_run_ends_the_run(lab: Lab) -> None:
    looping = with_patched_kernels(lab.bundle, lab.folder / "cut", forever=True)
    thread, failures = in_background(lab, looping)

    lab.drop_connections()

    assert "connection to rpi4 was lost" in the_failure(thread, failures).message
    eventually(lambda: "edgekit-agent" not in lab.on_board("ps -A -o comm="))
    lab.assert_usable()


@dataclass(frozen=True)
class Cable:
    """The network cable of the board. Whatever comes while it is out is lost without a word."""

    lab: Lab
    mark: str
    """What begins the lines on the console."""

    def set(self, plugged_in: bool) -> None:
        with connected(machines_dir() / NAME / QMP_SOCKET) as emulator:
            emulator.execute("set_link", name="network", up=plugged_in)

    def watch(self) -> None:
        """Have the board say on its console, which needs no cable, whether the cable is out when
        the last of edgekit's processes and folders for a command is gone."""
        self.lab.on_board(
            "cd .local/share/edgekit; (while ls runs | grep -q .; do sleep 1; done;"
            f" echo {self.mark} $(cat /sys/class/net/e*/carrier) | sudo tee /dev/console)"
            " </dev/null >/dev/null 2>&1 &"
        )

    def assert_all_ends_while_it_is_out(self) -> None:
        eventually(self.noted)
        assert self.noted() == ["0"]
        self.set(True)

    def noted(self) -> list[str]:
        lines = (machines_dir() / NAME / CONSOLE).read_text(errors="replace").splitlines()
        return [line.split()[1] for line in lines if line.startswith(f"{self.mark} ")]


@pytest.fixture
def cable(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cable:
    """One that is missed in half of the usual time."""
    monkeypatch.setattr(signs_of_life, "SECONDS_WITHOUT_HOST", 15)
    return Cable(lab, tmp_path.name)


def test_a_board_whose_cable_is_pulled_ends_a_model_by_itself(lab: Lab, cable: Cable) -> None:
    looping = with_patched_kernels(lab.bundle, lab.folder / "pulled", forever=True)
    thread, failures = in_background(lab, looping)
    cable.watch()

    cable.set(False)

    assert "rpi4 stopped answering" in the_failure(thread, failures).message
    cable.assert_all_ends_while_it_is_out()
    lab.assert_usable()


def test_a_board_whose_cable_is_pulled_ends_a_transfer_and_goes_on_with_it_later(
    lab: Lab, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = large(lab.bundle, lab.folder / "pulled-early")
    monkeypatch.setattr(transfer, "_SECONDS_BETWEEN_REPORTS", 0.0)

    def pull() -> None:
        cable.watch()
        cable.set(False)

    error = lab.failure(bundle, events=When("send the model", 2 << 20, pull))

    assert "rpi4 stopped answering" in error.message
    cable.assert_all_ends_while_it_is_out()
    again = Sent()
    run_on(lab.device(), bundle, events=again)
    (result,) = again.results
    assert 0 < float(result.split(" MiB")[0]) < 6
    lab.assert_usable()


def test_a_model_that_crashes_is_told_with_its_signal(lab: Lab) -> None:
    error = lab.failure(with_patched_kernels(lab.bundle, lab.folder / "trap"))

    assert "crashed on rpi4 while running: SIGILL" in error.message
    assert "--board rpi4" in str(error.hint)
    lab.assert_usable()


def test_a_model_that_never_ends_is_ended(lab: Lab) -> None:
    looping = with_patched_kernels(lab.bundle, lab.folder / "loop", forever=True)

    error, limit = stopped_at(
        "running", lambda seconds: lab.failure(looping, lab.device(timeout=seconds))
    )

    assert f"the model on rpi4 gave no sign of life for {limit} s while running" in error.message
    assert "--timeout" in str(error.hint)
    lab.assert_usable()


def test_two_deployments_at_once_both_succeed(lab: Lab) -> None:
    processes = [
        subprocess.Popen(
            edgekit_command(
                *("deploy", str(lab.model), "--board", "rpi4", "--twin", "--no-bench"),
                *("--out", str(lab.folder / f"deployed-{number}")),
            ),
            cwd=lab.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=COMMAND_SECONDS)
        assert process.returncode == 0, errors
    lab.assert_usable()


def test_a_clock_in_the_past_disturbs_nothing(lab: Lab) -> None:
    bundle = large(lab.bundle, lab.folder / "old", size=1000)
    lab.on_board("sudo date -s '1999-12-31 23:59:50'")
    try:
        run_on(lab.device(), bundle)
        bench_on(lab.device(), bundle, BenchPlan(1, 2, 0))
    finally:
        lab.on_board(f"sudo date -s @{int(time.time())}")

    lab.assert_usable()


def test_a_wrong_user_is_told(lab: Lab) -> None:
    device = lab.device()
    stranger = replace(device, entry=replace(device.entry, user="pi"))

    error = lab.failure(lab.bundle, stranger)

    assert error.message.startswith("127.0.0.1 does not let pi in")
    lab.assert_usable()


def test_a_changed_host_key_stops_everything_with_both_fingerprints(lab: Lab) -> None:
    device = lab.device()
    other = lab.folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    key = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    lab.access.known_hosts.write_text(f"[127.0.0.1]:{device.entry.port} {key}\n")

    error = lab.failure(lab.bundle, device)

    assert "has changed" in error.message
    assert error.message.count("SHA256:") == 2
    lab.assert_usable()


def test_a_bundle_for_a_cpu_with_more_instructions_is_refused(lab: Lab) -> None:
    request = request_for(lab.model, "rpi5")
    bundle = build(request, lab.folder / "rpi5", use_cache=False, isolated=False).bundle

    error = lab.failure(bundle)

    assert "built for rpi5, whose CPU has" in error.message
    assert "asimddp" in error.message
    assert "the CPU of rpi4 does not" in error.message
    lab.assert_usable()


def test_a_library_that_the_board_lacks_is_told(lab: Lab) -> None:
    device = lab.device()
    device.clean()
    lab.on_board("sudo mv /usr/lib/aarch64-linux-gnu/libstdc++.so.6 /var/hidden")
    try:
        error = lab.failure(lab.bundle)
    finally:
        lab.on_board("sudo mv /var/hidden /usr/lib/aarch64-linux-gnu/libstdc++.so.6")

    assert error.message == "rpi4 lacks the library libstdc++.so.6"
    assert "apt-get install libstdc++6" in str(error.hint)
    lab.assert_usable()


def test_a_library_that_goes_missing_later_is_told(lab: Lab) -> None:
    lab.on_board("sudo mv /usr/lib/aarch64-linux-gnu/libstdc++.so.6 /var/hidden")
    try:
        error = lab.failure(lab.bundle)
    finally:
        lab.on_board("sudo mv /var/hidden /usr/lib/aarch64-linux-gnu/libstdc++.so.6")

    assert error.message == "rpi4 lacks the library libstdc++.so.6"
    lab.assert_usable()


def test_a_model_that_needs_a_newer_glibc_is_refused(lab: Lab) -> None:
    source = '#include <stdio.h>\nvoid f(void) { puts(""); }'
    needy = with_c_library(lab.bundle, lab.folder / "needy", source, CROSS_COMPILER)
    library = needy.library.read_bytes()
    assert b"GLIBC_2.17" in library
    needy.library.write_bytes(library.replace(b"GLIBC_2.17", b"GLIBC_2.99"))

    error = lab.failure(resealed(needy, needy.path))

    assert "model.so needs glibc 2.99, and rpi4 has 2." in error.message
    lab.assert_usable()
