"""Reservations: a device is for one user for a while, whatever happens to the farm meanwhile."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.farm_clients import Others, others_in
from support.light_farm import LightFarm, light_farm
from support.rpc_lab import eventually

from edgekit.base.errors import UsageError
from edgekit.cli.program import run_command_line
from edgekit.devices.base import DeviceBusy
from edgekit.devices.keeper_messages import DeviceStatus
from edgekit.devices.lending import FARM, lent
from edgekit.farm.control import farm_status, release, reserve
from edgekit.farm.loans import reservations_file
from edgekit.farm.plan import Member
from edgekit.farm.web.page import devices_table

ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture(autouse=True)
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LightFarm]:
    members = (Member("wing", "stm32f405", ""), Member("desk", "rpi4", "rpi4"))
    with light_farm(tmp_path, monkeypatch, *members) as running:
        for name in ("wing", "desk"):
            becomes(name, "free")
        yield running


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Others]:
    with others_in(tmp_path) as made:
        yield made


def device(name: str = "desk") -> DeviceStatus:
    return farm_status().device(name)


def becomes(name: str, state: str) -> None:
    eventually(lambda: device(name).state == state)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*words: str, code: int = 0) -> str:
        assert run_command_line(["farm", *words]) == code
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", ["wing", "desk"])
def test_the_user_passes_and_others_wait_until_it_is_released(name: str, others: Others) -> None:
    reserve(name, 7200, "a demonstration")
    with lent(name, "mine", wait=0):
        pass
    becomes(name, "reserved")
    bob = others("benchmark", device=name, user="bob")
    eventually(lambda: "number 1 in the queue" in bob.told())
    assert f"{name} is reserved for {ME} until" in bob.told()
    with lent(name, "mine again", wait=0):  # the request before this one has to wait
        pass
    release(name)
    bob.has_it()
    assert device(name).reservation is None


def test_a_reservation_ends_by_itself(others: Others) -> None:
    reserve("desk", 1.0)
    becomes("desk", "reserved")
    others("benchmark", device="desk", user="bob").has_it()
    assert device().reservation is None


def test_the_work_under_way_ends_first(others: Others) -> None:
    bob = others("benchmark", device="desk", user="bob")
    bob.has_it()
    reserve("desk", 3600)
    assert device().state == "busy"
    with pytest.raises(DeviceBusy, match="bob"), lent("desk", "mine", wait=0):
        pass
    ours = others("mine", device="desk")
    eventually(lambda: len(device().queue) == 1)
    bob.end()
    ours.has_it()


def test_a_reservation_survives_the_farm_and_its_longest_time_is_limited(
    farm: LightFarm, others: Others
) -> None:
    with pytest.raises(UsageError, match="from 1 s to 2 h"):
        reserve("desk", 7201)
    reserve("desk", 7200)
    kept = device().reservation
    assert kept is not None
    farm.end()
    farm.start()
    found = device()
    assert (found.state, found.port) == ("reserved", 0)  # no worker offers it to the tracker
    assert found.reservation == kept
    bob = others("benchmark", device="desk", user="bob")
    eventually(lambda: "is reserved for" in bob.told())
    assert device().lease is None


def test_a_damaged_file_of_reservations_is_no_end_of_the_farm(farm: LightFarm) -> None:
    reserve("desk", 7200)
    farm.end()
    reservations_file().write_text("{")
    farm.start()
    assert device().reservation is None


def test_another_user_neither_takes_over_nor_releases_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reserve("desk", 7200)
    monkeypatch.setenv("LOGNAME", "bob")
    for attempt in (lambda: reserve("desk", 60), lambda: release("desk")):
        with pytest.raises(UsageError, match=f"reserved for {ME}"):
            attempt()
    with pytest.raises(DeviceBusy, match=f"reserved for {ME}"):
        FARM.check_free("desk", "")
    release("desk", force=True)
    assert device().reservation is None
    with pytest.raises(UsageError, match="desk is not reserved"):
        release("desk")
    with pytest.raises(UsageError, match="no device 'dusk'"):
        reserve("dusk", 60)


def test_the_commands_and_the_page_show_who_has_what(
    command: Callable[..., str], others: Others
) -> None:
    assert json.loads(command("queue", "--json")) == []
    assert "for 1 h" in command("reserve", "desk", "--for", "1.5h", "--why", "a demo")
    others("benchmark", device="wing", user="bob").has_it()
    others("tuning", device="wing")
    eventually(lambda: len(device("wing").queue) == 1)
    wing, desk = json.loads(command("queue", "--json"))
    assert wing["lease"]["purpose"] == "benchmark"
    assert [one["purpose"] for one in wing["queue"]] == ["tuning"]
    assert desk["reservation"]["user"] == ME
    assert json.loads(command("queue", "desk", "--json")) == [desk]
    shown = devices_table(farm_status())
    assert f"reserved for {ME} (a demo)" in shown
    assert "1 waiting" in shown
    told = command("queue")
    assert "reserved" in told
    assert "benchmark" in told
    assert json.loads(command("release", "desk", "--json"))["reservation"] is None


@pytest.mark.parametrize("time", ["2", "h", "-1h", "2 weeks", "1e3s"])
def test_a_time_that_is_none_is_refused(time: str, command: Callable[..., str]) -> None:
    command("reserve", "desk", "--for", time, code=2)
    assert device().reservation is None
