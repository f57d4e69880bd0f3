"""Entries of devices that another host has; what that host says of them is not trusted."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.devices import joined
from edgekit.devices.joined import joined_entry
from edgekit.devices.keeper_client import FarmDown
from edgekit.devices.registry import device_of
from edgekit.devices.serial.device import SerialDevice
from edgekit.profiles.board import load_board
from edgekit.project.devices import JoinedEntry

HOST = {"name": "attic", "address": "lab@attic", "key": "/keys/lab", "proxy": None, "program": None}
BOARD = {"board": "rpi4", "host": "10.0.0.11", "user": "pi", "directory": "/data/edgekit"}
LINE = {"board": "stm32f405", "serial": "/dev/ttyACM0", "baud": 115200, "probe": "066E"}


def entry_of(monkeypatch: pytest.MonkeyPatch, answer: Any) -> Any:
    def ask(request: object) -> Any:
        if isinstance(answer, EdgekitError):
            raise answer
        return answer

    monkeypatch.setattr(joined, "ask", ask)
    return joined_entry("attic/left")


def answer(entry: dict[str, Any], **changes: Any) -> dict[str, Any]:
    given = {"device": "left", "entry": entry, "address": "pi@10.0.0.11", "is_line": False}
    return {**given, "host": HOST, **changes}


def test_a_board_is_reached_through_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(monkeypatch, answer(BOARD))
    assert isinstance(entry, JoinedEntry)
    assert (entry.name, entry.device, entry.board) == ("attic/left", "left", "rpi4")
    assert (entry.host.host, entry.host.user, entry.host.key) == ("attic", "lab", "/keys/lab")
    assert entry.identity == "pi@10.0.0.11 on lab@attic"
    assert entry.directory == "/data/edgekit"
    assert not entry.is_emulated
    assert entry_of(monkeypatch, answer({"board": "rpi4", "twin": True})).is_emulated


@pytest.mark.parametrize(
    ("line", "address", "is_emulated"),
    [
        (LINE, "/dev/ttyACM0", False),
        ({**LINE, "host": "third.example"}, "/dev/ttyACM0 on third.example", False),
        ({**LINE, "serial": "unix:///tmp/twin"}, "unix:///tmp/twin", True),
        ({"board": "stm32f405", "labgrid": "desk-3"}, "labgrid's place desk-3", False),
        ({"board": "stm32f405", "twin": True}, "twin left", True),
    ],
    ids=["line", "third host", "socket", "labgrid", "twin"],
)
def test_a_microcontroller_of_any_kind_is_reached_through_its_host(
    line: dict[str, Any], address: str, *, is_emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_of(monkeypatch, answer(line, address=address))
    assert isinstance(entry, JoinedEntry)
    assert entry.baud == line.get("baud")
    assert entry.identity == f"{address} on lab@attic"
    device = device_of(entry, load_board("stm32f405"))
    assert isinstance(device, SerialDevice)
    assert device.is_emulated == is_emulated
    assert device.unit == ("instructions" if line.get("twin") else "cycles")
    assert device._identity == entry.identity


@pytest.mark.parametrize(
    "changes",
    [
        {"entry": {**BOARD, "board": "../x"}},
        {"entry": {**BOARD, "directory": "/data; rm -rf /"}},
        {"entry": {**LINE, "baud": 1}},
        {"device": "--help"},
        {"entry": []},
    ],
)
def test_invalid_answers_are_refused(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeviceError, match="is invalid"):
        entry_of(monkeypatch, {**answer(BOARD), **changes})


@pytest.mark.parametrize(
    "nothing", [FarmDown("no farm"), UsageError("no such device"), answer(BOARD, host=None)]
)
def test_without_such_a_device_there_is_no_entry(
    nothing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert entry_of(monkeypatch, nothing) is None
