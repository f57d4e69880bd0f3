"""Devices are lent by the keeper: to one client at a time, in turn, and never to a dead one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.farm_clients import Others, others_in
from support.light_farm import LightFarm, light_farm
from support.rpc_lab import eventually

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import SILENT
from edgekit.devices import lending
from edgekit.devices.base import DeviceBusy
from edgekit.devices.keeper_messages import DeviceStatus
from edgekit.devices.lending import NO_LENDER, LeaseOver, lent
from edgekit.devices.serial.device import SerialDevice
from edgekit.farm.control import drain, farm_status, resume
from edgekit.farm.plan import Member
from edgekit.profiles.board import load_board


@pytest.fixture(autouse=True)
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LightFarm]:
    members = (Member("wing", "stm32f405", ""), Member("tail", "stm32f405", ""))
    with light_farm(tmp_path, monkeypatch, *members, Member("desk", "rpi4", "rpi4")) as running:
        for name in ("wing", "desk"):
            eventually(lambda name=name: device(name).state == "free")  # type: ignore[misc]
        yield running


def device(name: str = "wing") -> DeviceStatus:
    return farm_status().device(name)


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Others]:
    with others_in(tmp_path) as made:
        yield made


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


def test_others_wait_their_turn_and_are_told_who_has_it(others: Others) -> None:
    first = others("first")
    first.has_it()
    with pytest.raises(DeviceError, match="first") as refused, lent("wing", "second", wait=0):
        pass
    assert refused.value.hint is not None
    second = others("second")
    eventually(lambda: len(device().queue) == 1)
    third = others("third")
    eventually(lambda: "number 2 in the queue" in third.told())
    assert [waiter.purpose for waiter in device().queue] == ["second", "third"]
    first.end()
    second.has_it()
    assert "(first) has wing since" in second.told()
    assert "number 1 in the queue" in second.told()
    eventually(lambda: "(second) has wing since" in third.told())
    assert "number 1 in the queue" in third.told()
    lease = device().lease
    assert lease is not None
    assert lease.purpose == "second"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_owner_and_a_waiter_that_ended_block_no_client(
    how: signal.Signals, others: Others
) -> None:
    first = others("first")
    first.has_it()
    gives_up = others("gives up")
    eventually(lambda: len(device().queue) == 1)
    gives_up.end(how)
    eventually(lambda: len(device().queue) == 0)
    first.end(how)
    with lent("wing", "last", wait=60):
        pass


@pytest.mark.parametrize("how", ["opened", "flashed"])
def test_a_device_is_leased_before_it_is_opened_or_written(how: str, others: Others) -> None:
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

    first = others("first")
    first.has_it()
    using = threading.Thread(target=use)
    using.start()
    eventually(lambda: len(device().queue) == 1)
    assert not refused, "it waits before it looks at anything"
    with pytest.raises(DeviceBusy, match="first"):
        wing.check_free()
    first.end()
    using.join()
    assert len(refused) == 1  # no firmware in the bundle, or nothing at that port
    eventually(lambda: device().lease is None)


def test_a_lease_ends_with_its_time(others: Others) -> None:
    with lent("wing", "slow", seconds=0.3) as ours:
        others("next").has_it()
        with pytest.raises(LeaseOver):
            ours.check()


def test_a_drained_device_is_not_lent() -> None:
    drain("wing")
    with pytest.raises(UsageError, match="drained"), lent("wing", "x"):
        pass
    resume("wing")
    with lent("wing", "x", wait=60):
        pass


def test_the_tracker_does_not_hand_out_a_device_that_is_lent(others: Others) -> None:
    """The stand-in for its worker ends, which is what holds the board and offers it."""
    first = others("first", device="desk")
    first.has_it()
    held = device("desk")
    assert (held.state, held.port, held.sessions) == ("busy", 0, 1)
    assert held.lease is not None
    assert held.lease.purpose == "first"
    second = others("second", device="desk")
    eventually(lambda: len(device("desk").queue) == 1)
    first.end()
    second.has_it()
    second.end()
    eventually(lambda: device("desk").state == "free")


def test_a_client_waits_through_a_restart_of_the_farm(farm: LightFarm, others: Others) -> None:
    with lent("wing", "first", wait=0) as ours:
        second = others("second")
        eventually(lambda: len(device().queue) == 1)
        farm.kill()
        eventually(lambda: "waiting for its restart" in second.told())
        with pytest.raises(LeaseOver, match="the farm is gone"):
            ours.check()
        farm.start()
        second.has_it()  # the farm has forgotten the lease; the device's own lock has not
        lease = device().lease
        assert lease is not None
        assert lease.purpose == "second"


def test_a_killed_farm_keeps_its_clients_waiting_for_as_long_as_they_would_wait(
    farm: LightFarm,
) -> None:
    farm.kill()
    with pytest.raises(DeviceBusy, match=r"within 3 s: its farm was killed and is not up again"):
        lending._found_after_restart("wing", "", 3.0, time.monotonic(), SILENT)
    with lent("wing", "a new client") as ours:  # the socket may be years old
        assert ours.conversation is None
    farm.start()
    found = lending._found_after_restart("wing", "", 3.0, time.monotonic(), SILENT)
    assert found is not None
    assert found.name == "wing"


def test_a_farm_that_ends_in_an_orderly_way_keeps_no_client_waiting(
    farm: LightFarm, others: Others
) -> None:
    others("first").has_it()
    got: list[object] = []

    def wait() -> None:
        with lent("wing", "second") as ours:
            got.append(ours.conversation)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: len(device().queue) == 1)
    farm.end()
    waiting.join()
    assert got == [None]  # the device's own lock decides
    farm.start()


def test_a_device_of_the_same_name_at_another_address_is_not_the_farms(
    tmp_path: Path, farm: LightFarm
) -> None:
    known = Member("wing", "stm32f405", "", address="/dev/ttyACM0")
    farm.end()
    farm.plan = replace(farm.plan, members=(known,))
    farm.start()
    with lent("wing", "elsewhere", address="/dev/ttyACM1"):
        assert device().lease is None
    with lent("another name", "the same", address="/dev/ttyACM0"):
        assert device().lease is not None


def test_a_farms_own_worker_asks_no_farm(others: Others) -> None:
    others("first").has_it()
    wing = SerialDevice("wing", load_board("stm32f405"), "socket://127.0.0.1:1", 115200)
    with pytest.raises(DeviceBusy):
        wing.check_free()
    with suppress(DeviceError):  # nothing listens at that port
        wing.lent_by(NO_LENDER).check_free()


def test_what_the_farm_does_not_know_is_nobodys_business() -> None:
    with lent("no such device", "x") as ours:
        ours.check()
