"""Devices, their workers, and those who use them fail."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from faults.world import Broken, World, eventually, world


def an_agent_is_killed(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        os.kill(lab.agents()[0], signal.SIGKILL)
        work.has(6)
        os.kill(lab.agents()[-1], signal.SIGKILL)
        work.finishes()
        lab.all_free()


def every_agent_is_killed_at_once(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(3)
        for agent in lab.agents():
            os.kill(agent, signal.SIGKILL)
        work.finishes()
        lab.all_free()


def a_session_is_killed(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        eventually("a session is killed", lambda: any(map(_killed, lab.sessions())))
        work.finishes()
        lab.all_free()


def a_session_is_frozen(folder: Path) -> None:
    """The agent ends it when its time is over."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        _stop(lab, lab.sessions)
        work.finishes()
        lab.all_free()


def a_worker_is_killed(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        for worker in lab.processes("simulated_device"):
            os.kill(worker, signal.SIGKILL)
        work.finishes()
        lab.all_free()


def a_worker_is_frozen(folder: Path) -> None:
    """It gives no sign of life, and is replaced."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        frozen = lab.processes("simulated_device")[0]
        os.kill(frozen, signal.SIGSTOP)
        work.finishes()
        eventually("the frozen worker is gone", lambda: frozen not in lab.processes())
        lab.all_free()


def the_work_is_killed(folder: Path) -> None:
    """Started again, it goes on where it was."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(5)
        work.kill()
        again = lab.start_work()
        again.has(5)
        if again.safe[:5] != list(range(5)):
            raise Broken("what was measured is measured again")
        again.finishes()
        lab.all_free()


def the_work_is_frozen(folder: Path) -> None:
    """Its lease has an end, and others get the device."""
    with world(folder, devices=1) as lab:
        work = lab.start_work()
        work.has(2)
        lab.busy_device()
        work.process.send_signal(signal.SIGSTOP)
        lab.all_free()
        other = lab.start_work(3)
        other.finishes(3)
        work.process.send_signal(signal.SIGCONT)
        work.finishes()


def a_device_is_drained_under_work(folder: Path) -> None:
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        name = lab.busy_device()
        lab.ask({"do": "drain", "device": name})
        work.finishes()
        states = {"name": name, "state": "drained"}.items()
        eventually("it is drained", lambda: any(states <= d.items() for d in lab.devices()))


def _killed(pid: int) -> bool:
    """False for one that ended by itself just now."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _stop(lab: World, whom: object) -> list[int]:
    """Frozen where there are some: sessions come and go."""
    assert callable(whom)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found: list[int] = list(whom())
        if found and lab.sessions():
            for pid in found:
                try:
                    os.kill(pid, signal.SIGSTOP)
                except ProcessLookupError:
                    continue
            return found
        time.sleep(0.02)
    raise Broken("nothing runs that could be frozen")
