"""The farm's own processes fail, and the machine that they run on does odd things."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

from support.rpc_lab import _parent

from edgekit.base.unix_sockets import reachable
from faults.world import Broken, World, eventually, world

_JUMPS = (86_400.0, -86_400.0)
_CLOCK = """\
import os, time
_real, _file = time.time, os.environ.get("EDGEKIT_CLOCK")
def _shifted():
    try:
        with open(_file) as offset:
            return _real() + float(offset.read() or 0)
    except OSError:
        return _real()
if _file:
    time.time = _shifted
"""


def the_tracker_is_killed(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        for count in (2, 6):
            work.has(count)
            for tracker in lab.processes("tracker_worker"):
                os.kill(tracker, signal.SIGKILL)
        work.finishes()
        lab.all_free()


def the_tracker_is_frozen(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        (tracker,) = lab.processes("tracker_worker")
        os.kill(tracker, signal.SIGSTOP)
        time.sleep(3)
        os.kill(tracker, signal.SIGCONT)
        work.finishes()
        lab.all_free()


def the_keeper_is_killed(folder: Path) -> None:
    """systemd starts it again; everything that it had started is gone by itself."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        assert lab.keeper is not None
        lab.keeper.kill()
        lab.keeper.wait()
        works = {work.process.pid}
        eventually("what it kept is gone", lambda: not set(lab.processes()) - works)
        lab.start_keeper()
        work.finishes()
        lab.all_free()


def the_keeper_is_frozen(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        assert lab.keeper is not None
        faults = [device["faults"] for device in lab.devices()]
        lab.keeper.send_signal(signal.SIGSTOP)
        time.sleep(15)
        lab.keeper.send_signal(signal.SIGCONT)
        work.finishes()
        lab.all_free()
        if [device["faults"] for device in lab.devices()] != faults:
            raise Broken("it took its own sleep for that of its workers")


def the_clock_jumps(folder: Path) -> None:
    """A day ahead and two back: devices that are lost come back all the same."""
    site = folder / "site"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(_CLOCK)
    os.environ["EDGEKIT_CLOCK"] = str(site / "clock")
    path = os.environ.get("PYTHONPATH")
    try:
        with world(folder / "world") as lab:
            lab.environment["PYTHONPATH"] += f":{site}"
            assert lab.keeper is not None
            lab.close()
            lab.start_keeper()
            work = lab.start_work()
            for jump in _JUMPS:
                work.has(2 + len(work.safe) % 2)
                (site / "clock").write_text(str(jump))
                os.kill(lab.agents()[0], signal.SIGKILL)
                lab.all_free()
            work.finishes()
            lab.all_free()
    finally:
        del os.environ["EDGEKIT_CLOCK"]
        if path is not None:
            os.environ["PYTHONPATH"] = path


def nonsense_on_the_socket(folder: Path) -> None:
    """Garbage, half a line, and a hundred who say nothing."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(1)
        silent = []
        with reachable(lab.data / "farm" / "control.sock") as name:
            for _ in range(100):
                stream = socket.socket(socket.AF_UNIX)
                stream.connect(name)
                silent.append(stream)
        for number, stream in enumerate(silent[:50]):
            stream.sendall((b"\xff\x00{\n", b'{"do": "ta', b"[" * 5000 + b"\n")[number % 3])
        work.finishes()
        for stream in silent:
            stream.close()
        lab.all_free()


def files_of_state_are_damaged(folder: Path) -> None:
    """A farm that runs goes on; one that starts says what is wrong, or needs none of it."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        tracker = lab.data / "rpc" / "tracker.json"
        whole = tracker.read_bytes()
        tracker.write_bytes(whole[: len(whole) // 2])
        hosts = lab.folder / "config" / "edgekit" / "farm.toml"
        hosts.parent.mkdir(exist_ok=True)
        hosts.write_bytes(b"\xff\xfe[hosts")
        refused = lab.ask({"do": "hosts"})
        if "farm.toml" not in refused.get("error", ""):
            raise Broken(f"a damaged file was read as {refused}")
        time.sleep(1)
        tracker.write_bytes(whole)
        work.finishes()
        lab.all_free()
        assert lab.keeper is not None
        lab.close()
        again = lab.edgekit("farm", "up", "--port", str(lab.port))
        if again.returncode in (0, 1) or "farm.toml" not in again.stderr:
            raise Broken(f"farm up said {again.stderr[-300:]}")
        hosts.unlink()
        for name in ("lock", "control.sock"):
            (lab.data / "farm" / name).write_bytes(b"\xff" * 100)
        lab.start_keeper()
        lab.all_free()


def the_farm_is_ended_under_work(folder: Path) -> None:
    """`edgekit farm down`, and up again: the work waits."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        down = lab.edgekit("farm", "down")
        if down.returncode != 0:
            raise Broken(down.stderr)
        _only_work_is_left(lab, work.process.pid)
        lab.start_keeper()
        work.finishes()
        lab.all_free()


def _only_work_is_left(lab: World, work: int) -> None:
    def is_so() -> bool:
        return all(work in (pid, _parent(pid)) for pid in lab.processes())

    eventually("no process of the farm outlives it", is_so, 10)
