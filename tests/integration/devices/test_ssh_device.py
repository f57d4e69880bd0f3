"""A Linux machine over SSH as a device: the real agent, behind a real SSH server."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.building import tmpfs
from support.local_bundles import built_bundle, with_c_library, with_patched_kernels
from support.needs import needs
from support.on_device import bench_on, run_all_on, run_on
from support.patience import stopped_at
from support.rpc_lab import eventually
from support.ssh_server import SshServer, agents_of, ssh_server

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import Event, Events, StageStarted, Warned
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.choice import _first_free
from edgekit.devices.linux.connection import Connection
from edgekit.devices.linux.lease import lease
from edgekit.devices.linux.observing import _Listening
from edgekit.devices.linux.preflight import check_libraries, check_machine, required_features
from edgekit.devices.linux.probe import ask_device
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.sensors.discovery import Board, Sensor
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.project.devices import SshEntry
from edgekit.verbs.bench import bench
from edgekit.verbs.verify import verify

pytestmark = needs("sshd")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        running.connect().close()
        yield running


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built_bundle(tmp_path_factory.mktemp("built"))[1]


def device_on(server: SshServer, timeout: float = 240) -> SshDevice:
    return SshDevice(server.entry(), load_toolchain("host"), timeout, server.known_hosts)


def failure(server: SshServer, bundle: Bundle, timeout: float = 240) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        run_on(device_on(server, timeout), bundle)
    assert caught.value.hint
    return caught.value


def assert_usable(server: SshServer, bundle: Bundle) -> None:
    result = run_on(device_on(server), bundle)
    for name, expected in bundle.reference_outputs().items():
        np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-4, atol=1e-5)
    eventually(server.is_given_back)
    assert list((server.root / "runs").iterdir()) == []


def test_a_model_gives_the_oracles_numbers_and_is_sent_once(
    server: SshServer, bundle: Bundle
) -> None:
    titles: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            titles.append(event.title)

    assert_usable(server, bundle)
    result = run_on(device_on(server), bundle, events=Events(listen))

    assert result.seconds > 0
    assert not [title for title in titles if title.startswith("send")]


def test_what_lies_on_the_device_is_small_and_whole(server: SshServer, bundle: Bundle) -> None:
    assert_usable(server, bundle)

    (agent,) = (server.root / "agents").iterdir()
    size = sum(file.stat().st_size for file in agent.iterdir())
    assert size < 500_000
    assert not {f.name for f in agent.iterdir()} & {"libtvm_runtime.so", "libtvm_ffi.so"}
    assert (server.root.stat().st_mode & 0o077) == 0 or (agent.stat().st_mode & 0o077) == 0


def test_many_samples_run_in_order_with_one_connection(server: SshServer, bundle: Bundle) -> None:
    inputs = bundle.reference_inputs()
    samples = [{name: array * factor for name, array in inputs.items()} for factor in range(40)]

    results = [r.outputs["features"] for r in run_all_on(device_on(server), bundle, samples)]

    assert len(results) == 40
    local = bundle.reference_outputs()["features"]
    np.testing.assert_allclose(results[1], local, rtol=1e-4, atol=1e-5)
    assert all((a != b).any() for a, b in itertools.pairwise(results))


def logins(server: SshServer) -> int:
    return (server.folder / "log").read_text().count("Accepted publickey")


def test_a_device_opened_once_verifies_and_measures_with_one_command_over_one_connection(
    server: SshServer, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_usable(server, bundle)
    before, commands = logins(server), []
    command = Connection.command

    def counted(self: Connection, words: Sequence[str], **how: Any) -> object:
        commands.append(how.get("title") or words[0])
        return command(self, words, **how)

    monkeypatch.setattr(Connection, "command", counted)
    with device_on(server).opened(bundle) as session:
        report = verify(bundle, session)
        measured = bench(bundle, session, BenchPlan(warmup=1, runs=3, seconds=0.0))
        for _ in range(2):  # the agent records a new version and the one that is current
            session.make_current(verified=True, median=measured.median, keep=3)

    assert report.passed
    assert measured.runs == 3
    assert logins(server) - before == 1
    assert commands == ["edgekit-agent"]


def test_a_device_is_reached_while_something_else_is_done(
    server: SshServer, bundle: Bundle
) -> None:
    assert_usable(server, bundle)
    before = logins(server)

    with device_on(server).prepared_early() as reached:
        eventually(lambda: agents_of(server))
        with reached.opened(bundle) as session:
            assert session.run(bundle.reference_inputs()).seconds > 0

    assert logins(server) - before == 1
    eventually(lambda: not agents_of(server))


def test_a_connection_lost_on_the_way_is_made_anew(server: SshServer, bundle: Bundle) -> None:
    assert_usable(server, bundle)

    with device_on(server).prepared_early() as reached:
        eventually(lambda: agents_of(server))
        eventually(lambda: all(t.name != "edgekit-early" for t in threading.enumerate()))
        server.drop_connections()
        eventually(lambda: not agents_of(server))
        with reached.opened(bundle) as session:
            assert session.run(bundle.reference_inputs()).seconds > 0


def test_who_was_on_the_way_for_nothing_leaves_nothing(server: SshServer, bundle: Bundle) -> None:
    assert_usable(server, bundle)

    with device_on(server).prepared_early():
        pass

    eventually(lambda: not server.sessions())


@pytest.mark.parametrize("kind", ["agents", "models"])
def test_what_came_out_empty_is_sent_again(server: SshServer, bundle: Bundle, kind: str) -> None:
    """As after power was lost on a file system that writes names before what is in the files."""
    assert_usable(server, bundle)
    for file in (server.root / kind).rglob("*"):
        if file.is_file():
            file.write_bytes(b"")

    assert_usable(server, bundle)

    assert all(file.stat().st_size for file in (server.root / "objects").iterdir())


def test_a_session_tells_what_lies_on_the_device_and_what_of_it_was_sent_now(
    bundle: Bundle, tmp_path: Path
) -> None:
    with ssh_server(tmp_path) as fresh:
        fresh.connect().close()
        with device_on(fresh).opened(bundle) as session:
            first = session.installed
        with device_on(fresh).opened(bundle) as session:
            again = session.installed

        files = [f for kind in ("agents", "models") for f in (fresh.root / kind).rglob("*")]
        assert first.total == sum(file.stat().st_size for file in files if file.is_file())
    assert (first.sent, again.sent) == (first.total, 0)
    assert again.model == bundle.library.stat().st_size
    assert again.agent > 0
    assert again.runtime == 0


def test_a_session_is_for_one_bundle(server: SshServer, bundle: Bundle) -> None:
    other = replace(bundle, digest="0" * 64)

    with device_on(server).opened(bundle) as session:
        with session.opened(bundle) as same:
            assert same is session
        with pytest.raises(UsageError, match="was opened for"), session.opened(other):
            pass


def test_a_model_gone_from_the_device_is_sent_again(server: SshServer, bundle: Bundle) -> None:
    assert_usable(server, bundle)
    there = server.root / "models" / bundle.digest / "model.so"
    there.unlink()

    assert_usable(server, bundle)

    assert there.stat().st_size == bundle.library.stat().st_size


def test_measuring_gives_the_samples_asked_for(server: SshServer, bundle: Bundle) -> None:
    plan = BenchPlan(warmup=2, runs=7, seconds=0.0, threads=1)

    measured = bench_on(device_on(server), bundle, plan)

    assert len(measured.nanoseconds) == 7
    assert all(sample > 0 for sample in measured.nanoseconds)
    assert (measured.warmup, measured.threads) == (2, 1)
    assert measured.memory.peak is None or measured.memory.peak > 1_000_000
    assert measured.host_before.cores >= 1


def test_the_agent_tells_what_the_device_is(server: SshServer) -> None:
    with device_on(server).with_agent() as agent:
        info = agent.info()

    assert info.machine == os.uname().machine
    assert info.tvm == "0.27.0.post1"
    assert info.cores == len(os.sched_getaffinity(0))


def test_a_crash_while_running_is_named_with_its_signal(
    server: SshServer, bundle: Bundle, tmp_path: Path
) -> None:
    error = failure(server, with_patched_kernels(bundle, tmp_path / "trap"))

    assert "crashed on desk while running: SIGILL" in error.message
    assert "built for another CPU" in str(error.hint)
    assert_usable(server, bundle)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise(SIGSEGV);", "crashed on desk while loading: SIGSEGV"),
        ("kill(getpid(), SIGKILL);", "SIGKILL (it was killed from outside)"),
        ("_exit(3);", "ended its process on desk with exit code 3 while loading"),
        ('for (int i = 0; i < 300000; i++) puts("noise"); fflush(stdout); abort();', "SIGABRT"),
    ],
)
def test_a_model_that_ends_its_process_is_told_as_what_it_was(
    server: SshServer, bundle: Bundle, tmp_path: Path, code: str, says: str
) -> None:
    source = (
        "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void start(void) {" + code + "}"
    )

    error = failure(server, with_c_library(bundle, tmp_path / "bad", source))

    assert says in error.message
    assert len(error.details) < 50


def test_a_model_without_end_is_stopped_over_there(
    server: SshServer, bundle: Bundle, tmp_path: Path
) -> None:
    looping = with_patched_kernels(bundle, tmp_path / "loop", forever=True)

    error, limit = stopped_at("running", lambda seconds: failure(server, looping, timeout=seconds))

    assert f"the model on desk gave no sign of life for {limit} s while running" in error.message
    assert "--timeout" in str(error.hint)
    eventually(lambda: not agents_of(server))
    assert_usable(server, bundle)


def in_background(
    server: SshServer, bundle: Bundle
) -> tuple[threading.Thread, list[BaseException]]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            run_on(device_on(server), bundle)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: failures or runs_a_model(server))
    assert not failures
    return thread, failures


def runs_a_model(server: SshServer) -> bool:
    for pid in agents_of(server):
        with suppress(OSError):  # it has just ended
            if "/model.so" in Path(f"/proc/{pid}/maps").read_text(errors="replace"):
                return True
    return False


def test_an_agent_that_is_killed_is_told(server: SshServer, bundle: Bundle, tmp_path: Path) -> None:
    thread, failures = in_background(
        server, with_patched_kernels(bundle, tmp_path / "l", forever=True)
    )

    for pid in agents_of(server):
        with suppress(ProcessLookupError):  # the model's process goes with the other
            os.kill(int(pid), signal.SIGKILL)
    thread.join(timeout=240)

    assert "SIGKILL" in str(failures[0])
    assert_usable(server, bundle)


def test_a_connection_lost_while_a_model_runs_ends_it_over_there(
    server: SshServer, bundle: Bundle, tmp_path: Path
) -> None:
    thread, failures = in_background(
        server, with_patched_kernels(bundle, tmp_path / "l", forever=True)
    )

    server.drop_connections()
    thread.join(timeout=240)

    assert "connection to desk was lost" in str(failures[0])
    eventually(lambda: not agents_of(server))
    assert_usable(server, bundle)


def test_two_runs_at_once_come_one_after_the_other(server: SshServer, bundle: Bundle) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            assert run_on(device_on(server), bundle).seconds > 0
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_a_bundle_for_another_cpu_family_is_refused(
    server: SshServer, bundle: Bundle, tmp_path: Path
) -> None:
    from support.local_bundles import copied, resealed

    folder = copied(bundle, tmp_path / "foreign")
    library = bytearray((folder / "model.so").read_bytes())
    library[18:20] = (8).to_bytes(2, "little")  # MIPS
    (folder / "model.so").write_bytes(library)

    error = failure(server, resealed(bundle, folder))

    assert "but desk is a" in error.message


def test_instructions_that_the_device_lacks_are_told_before_they_are_used(
    server: SshServer, bundle: Bundle
) -> None:
    with server.connect() as own:
        facts = ask_device(own)
    check_machine(bundle, facts, "desk")
    needed = required_features(bundle.manifest.target, facts.machine)
    assert needed

    for feature in needed[-3:]:
        poorer = replace(facts, cpuinfo=re.sub(rf"\b{feature}\b", "", facts.cpuinfo, count=1))
        with pytest.raises(DeviceError, match=rf"CPU has .*{feature}.*the CPU of desk does"):
            check_machine(bundle, poorer, "desk")


def test_a_glibc_that_is_too_old_and_a_missing_library_are_told(
    server: SshServer, bundle: Bundle, tmp_path: Path
) -> None:
    program = tmp_path / "needy.so"
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-x",
            "c",
            "-o",
            str(program),
            "-",
            "-Wl,--no-as-needed",
            "-lm",
        ],
        input='#include <stdio.h>\nvoid f(void) { puts(""); }',
        text=True,
        check=True,
    )
    with server.connect() as own:
        facts = ask_device(own)
        check_libraries([program], facts, own, frozenset())
        with pytest.raises(
            DeviceError, match=r"needy.so needs glibc 2\.[0-9.]+, and desk has 2\.1"
        ):
            check_libraries([program], replace(facts, glibc=(2, 1)), own, frozenset())
        program.write_bytes(program.read_bytes().replace(b"libm.so.6", b"libx.so.6"))
        with pytest.raises(DeviceError, match=r"desk lacks the library libx\.so\.6"):
            check_libraries([program], facts, own, frozenset())


@needs("mounts", "root")
def test_outputs_that_do_not_fit_on_the_disk_are_told(bundle: Bundle, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "ssh", mount=tmpfs("size=14m")) as small:
        small.connect().close()
        run_on(device_on(small), bundle)
        with small.connect() as own:
            # Or the room that the run took is there again after the disk was filled.
            eventually(lambda: own.run(("ls", "-A", f"{small.directory}/runs")).output == "")
            own.run(("dd", "if=/dev/zero", f"of={small.directory}/other", "bs=4k"))

        error = failure(small, bundle)

        assert "no space left" in error.message or "disk is full" in error.message
        with small.connect() as own:
            own.run(("rm", f"{small.directory}/other"))
        run_on(device_on(small), bundle)


def test_tidying_up_removes_everything_or_keeps_the_latest(
    server: SshServer, bundle: Bundle, tmp_path: Path
) -> None:
    device = device_on(server)
    device.clean(everything=True)  # what an earlier test made current is kept without it
    other = built_bundle(tmp_path)[1]
    other = replace(other, digest="0" * 64)
    for each in (other, bundle):
        run_on(device_on(server), each)
        eventually(server.is_given_back)
        time.sleep(1.1)

    kept = device.clean(keep=1)
    assert kept.models >= 1
    assert [f.name for f in (server.root / "models").iterdir()] == [bundle.digest]
    everything = device.clean()

    assert everything.models == 1
    assert everything.freed > bundle.library.stat().st_size
    assert list((server.root / "objects").iterdir()) == []
    assert_usable(server, bundle)


def test_of_several_devices_the_first_free_one_is_taken_and_named(
    server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "edgekit").mkdir()
    (tmp_path / "edgekit" / "known_hosts").write_bytes(server.known_hosts.own.read_bytes())
    second = tmp_path / "second"
    second.mkdir()
    entries = [
        SshEntry("off", "local", "127.0.0.1", port=1, key=server.key),
        server.entry("busy"),
        replace(server.entry("free"), directory=str(second)),
    ]
    told: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Warned):
            told.append(event.text)

    eventually(server.is_given_back)
    with server.connect() as own, lease(own, ask_device(own).root, wait=None):
        chosen = _first_free(load_board("local"), entries, Events(listen))

    assert chosen.name == "free"
    assert "using free" in told[-1]
    assert "off is skipped" in told[0]


def test_a_boards_sensors_are_read_while_a_model_is_measured(
    server: SshServer, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reads for real; that the board has a power rail and a thermal zone is made up."""
    rail, zone = tmp_path / "power1_input", tmp_path / "temp"
    rail.write_text("2500000\n")
    zone.write_text("51500\n")
    board = Board(
        None,
        None,
        (
            Sensor("VDD_IN", "watts", (str(rail),), 1e-6, is_total=True),
            Sensor("cpu", "celsius", (str(zone),), 1e-3),
            Sensor("gone", "fan", (str(tmp_path / "nothing"),), 1.0),
        ),
    )
    monkeypatch.setattr("edgekit.devices.linux.observing._board_of", lambda connection: board)
    plan = BenchPlan(warmup=1, runs=3, seconds=1.0, sensors=True)
    report = bench(bundle, device_on(server), plan)
    assert report.power is not None
    assert report.power.source == "VDD_IN"
    assert report.power.watts == pytest.approx(2.5)
    assert report.power.idle_watts == pytest.approx(2.5)
    assert report.power.joules == pytest.approx(2.5 * report.mean)
    assert report.temperature == 51.5
    assert report.throttled is None
    eventually(lambda: not agents_of(server))  # what watched them neither


def test_a_look_at_sensors_begins_with_what_they_say_first(
    server: SshServer, tmp_path: Path
) -> None:
    """However long the agent takes to start."""
    slow = tmp_path / "slow-agent"
    slow.write_text("#!/bin/sh\nsleep 0.5\nprintf '1000000000\\t7\\n'\nexec sleep 600\n")
    slow.chmod(0o755)

    with server.connect() as own, _Listening(own, (str(slow),), ("/rail",)) as listening:
        readings = listening.readings()

    assert (readings.times, readings.values) == ((1.0,), {"/rail": (7,)})


def test_a_board_without_sensors_is_measured_all_the_same(
    server: SshServer, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "edgekit.devices.linux.observing._board_of", lambda connection: Board(None, None, ())
    )
    report = bench(bundle, device_on(server), BenchPlan(runs=3, seconds=0, sensors=True))
    assert (report.power, report.temperature) == (None, None)
