"""Microcontrollers are lent by the keeper: one at a time, in turn, and never to the dead."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.light_farm import light_farm
from support.rpc_lab import eventually

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.devices.base import DeviceBusy
from edgekit.devices.keeper_client import ask
from edgekit.devices.lending import LeaseOver, lent
from edgekit.devices.serial.device import SerialDevice
from edgekit.farm.control import drain, farm_status, resume
from edgekit.farm.plan import Member
from edgekit.farm.status import DeviceStatus
from edgekit.profiles.board import load_board

HOLDS = """
import sys, time
from edgekit.devices.lending import lent
with lent("wing", sys.argv[1]):
    print("mine", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    members = (Member("wing", "stm32f405", ""), Member("tail", "stm32f405", ""))
    with light_farm(tmp_path, monkeypatch, *members, Member("desk", "rpi4", "rpi4")):
        eventually(lambda: device().state == "free")
        yield


def device(name: str = "wing") -> DeviceStatus:
    (found,) = (d for d in farm_status().devices if d.name == name)
    return found


class Other:
    """Another process that wants the device, and keeps it."""

    def __init__(self, purpose: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDS, purpose],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def has_it(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "mine\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def others() -> Iterator[list[Other]]:
    made: list[Other] = []
    yield made
    for other in made:
        other.kill()


def test_whoever_has_it_is_named_until_the_block_ends() -> None:
    with lent("wing", "tuning", seconds=60) as ours:
        told = device()
        assert told.state == "busy"
        assert told.lease is not None
        assert told.lease.purpose == "tuning"
        assert told.lease.until > farm_status().now
        ours.check()
        with lent("wing", "bench inside", seconds=60, wait=0):
            pass  # this process has it already
    eventually(lambda: device().lease is None)
    assert device().state == "free"


def test_what_is_free_is_lent_to_whoever_does_not_wait() -> None:
    with lent("wing", "at once", wait=0):
        assert device().state == "busy"


def test_others_wait_their_turn_and_are_told_who_has_it(others: list[Other]) -> None:
    others.append(Other("first"))
    others[0].has_it()
    with pytest.raises(DeviceError, match="first") as refused, lent("wing", "second", wait=0):
        pass
    assert refused.value.hint is not None
    others.append(Other("second"))
    eventually(lambda: device().waiting == 1)
    others[0].kill()
    others[1].has_it()
    lease = device().lease
    assert lease is not None
    assert lease.purpose == "second"


def test_a_killed_owner_and_one_that_waits_no_more_block_nobody(others: list[Other]) -> None:
    others.extend((Other("first"),))
    others[0].has_it()
    others.append(Other("gives up"))
    eventually(lambda: device().waiting == 1)
    others[1].kill()
    eventually(lambda: device().waiting == 0)
    others[0].kill()
    with lent("wing", "last", wait=60):
        pass


@pytest.mark.parametrize("how", ["opened", "flashed"])
def test_a_device_is_leased_before_it_is_opened_or_written(how: str, others: list[Other]) -> None:
    wing = SerialDevice("wing", load_board("stm32f405"), "socket://127.0.0.1:1", 115200)

    @contextmanager
    def held_firmware() -> Iterator[Path]:
        raise EdgekitError("the bundle has no firmware")
        yield

    given: Any = SimpleNamespace(path="nowhere", held_firmware=held_firmware)
    refused: list[EdgekitError] = []

    def use() -> None:
        try:
            with getattr(wing, how)(given):
                pass
        except EdgekitError as error:
            refused.append(error)

    others.append(Other("first"))
    others[0].has_it()
    using = threading.Thread(target=use)
    using.start()
    eventually(lambda: device().waiting == 1)
    assert not refused, "it waits before it looks at anything"
    with pytest.raises(DeviceBusy, match="first"):
        wing.check_free()
    others[0].kill()
    using.join()
    assert len(refused) == 1  # no firmware in the bundle, or nothing at that port
    eventually(lambda: device().lease is None)


def test_a_lease_ends_with_its_time(others: list[Other]) -> None:
    with lent("wing", "slow", seconds=0.3) as ours:
        others.append(Other("next"))
        others[0].has_it()
        with pytest.raises(LeaseOver):
            ours.check()


def test_a_drained_one_and_one_of_the_trackers_are_lent_to_nobody() -> None:
    drain("wing")
    with pytest.raises(UsageError, match="drained"), lent("wing", "x"):
        pass
    resume("wing")
    with lent("wing", "x", wait=60):
        pass
    with pytest.raises(UsageError, match="handed out by the tracker"):
        ask({"do": "take", "device": "desk", "owner": "me", "purpose": "x", "seconds": 1})


def test_what_the_farm_does_not_know_is_nobodys_business() -> None:
    with lent("no such device", "x") as ours:
        ours.check()
