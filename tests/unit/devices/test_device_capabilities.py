"""A device gives a capability, or says that it lacks it and which devices have it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from edgekit.base.errors import UsageError
from edgekit.devices.choice import device_for
from edgekit.devices.device import Device, KeepsLog
from edgekit.devices.local.device import LocalDevice
from edgekit.devices.serial.device import SerialDevice
from edgekit.profiles.board import load_board
from edgekit.project.devices import make_entry, make_line_entry, make_login

CAPABILITIES: tuple[Callable[[Device], object], ...] = (
    Device.agent,
    Device.version_keeper,
    Device.log_keeper,
    Device.file_keeper,
    Device.checkable,
    Device.firmware,
    Device.line,
)


def made() -> dict[str, Device]:
    chip = load_board("stm32f405")
    pi = make_entry("pi", load_board("rpi4"), "pi@host")
    near = make_line_entry("near", chip, "/dev/ttyS1")
    far = make_line_entry("far", chip, "/dev/ttyS1", via=make_login("far", chip.name, "lab@host"))
    devices: dict[str, Device] = {"local": LocalDevice()}
    for entry in (pi, near, far):
        devices[entry.name] = device_for(load_board(entry.board), entry.name, {entry.name: entry})
    return devices


def has(device: Device, ask: Callable[[Device], object]) -> bool:
    try:
        asked = getattr(device, ask.__name__)()
    except UsageError as error:
        assert device.name in error.message
        assert device.what in error.message
        assert error.hint
        return False
    assert asked is device
    return True


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("local", ""),
        ("pi", "agent version_keeper log_keeper file_keeper checkable"),
        ("near", "firmware line"),
        ("far", "checkable firmware line"),
    ],
)
def test_each_kind_of_device_has_its_capabilities(name: str, expected: str) -> None:
    device = made()[name]
    found = [ask.__name__ for ask in CAPABILITIES if has(device, ask)]
    assert found == expected.split()
    assert not device.is_emulated


class Drawer(Device):
    """A kind of device that edgekit does not know, with a log and nothing else."""

    name, what = "drawer", "a drawer"

    def opened(self, *words: object, **more: object) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def check_free(self) -> None:
        raise NotImplementedError

    def log_keeper(self) -> KeepsLog:
        return self  # type: ignore[return-value]


def test_a_new_kind_of_device_needs_only_what_it_can_do() -> None:
    found = [ask.__name__ for ask in CAPABILITIES if has(Drawer(), ask)]
    assert found == ["log_keeper"]
    with Drawer().prepared_early() as device:
        assert device.name == "drawer"


def test_a_device_of_the_wrong_kind_is_refused_with_where_to_go() -> None:
    devices = made()
    with pytest.raises(UsageError, match="near is a microcontroller: it keeps no versions") as one:
        devices["near"].version_keeper()
    assert "edgekit flash" in str(one.value.hint)
    assert "boards with Linux" in str(one.value.hint)
    with pytest.raises(UsageError, match="pi is a board with Linux: it has no firmware") as other:
        devices["pi"].firmware()
    assert "microcontrollers" in str(other.value.hint)


def test_an_emulated_microcontroller_counts_instructions() -> None:
    from pathlib import Path

    from edgekit.devices.serial.device import EmulatedChip

    board = load_board("mps2-an386")
    chip = EmulatedChip(Path("/nowhere"), 25_000_000)
    real = SerialDevice("m4", board, "/dev/ttyS1", 115200)
    emulated = SerialDevice("m4", board, "/dev/ttyS1", 115200, chip=chip)
    assert (real.unit, real.is_emulated) == ("cycles", False)
    assert (emulated.unit, emulated.is_emulated) == ("instructions", True)
