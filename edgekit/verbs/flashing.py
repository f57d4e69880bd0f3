"""A bundle's firmware onto a microcontroller, and what is there then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.aot.firmware.firmware_file import read_firmware
from edgekit.base.errors import BundleError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.devices.serial.device import SerialDevice
from edgekit.farm.lending import lent

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import Device


@dataclass(frozen=True)
class FlashedModel:
    name: str
    sha256: str
    arena: int


@dataclass(frozen=True)
class BoardReport:
    """What a board with edgekit's firmware says of itself."""

    device: str
    port: str
    firmware: str
    """The build ID of what runs there."""
    core: str
    clock: int
    """In Hz, as the firmware set it."""
    stack: int
    models: tuple[FlashedModel, ...]


@dataclass(frozen=True)
class FlashReport:
    board: BoardReport
    written: int
    """Bytes; 0 where the firmware was there already."""
    seconds: float


def flash(
    bundle: Bundle, device: Device, events: Events = SILENT, *, again: bool = False
) -> FlashReport:
    """Write the firmware if another one is there, or `again`; verified, and asked who it is."""
    began = time.monotonic()
    on_a_line = serial_device(device)
    if bundle.firmware is None:
        raise BundleError(
            f"the bundle {bundle.path} has no firmware",
            hint="build it for a bare-metal board; `edgekit boards` lists them",
        )
    on_a_line.check_board(bundle)
    firmware = read_firmware(bundle.firmware)
    with (
        lent(on_a_line.name, "flash", events=events),
        on_a_line.prepared(firmware, events, again=again) as (client, hello, written),
    ):
        models = [client.model(index) for index in range(hello.models)]
    board = BoardReport(
        device.name,
        on_a_line.port,
        hello.build_id,
        hello.core,
        hello.clock,
        hello.stack,
        tuple(FlashedModel(model.name, model.sha256, model.arena) for model in models),
    )
    return FlashReport(board, written, time.monotonic() - began)


def check_microcontroller(name: str, kind: str) -> None:
    """Of a board, before a device or a twin of it is looked for."""
    if kind != "baremetal":
        raise _no_microcontroller(name)


def serial_device(device: Device) -> SerialDevice:
    if not isinstance(device, SerialDevice):
        raise _no_microcontroller(device.name)
    return device


def _no_microcontroller(name: str) -> UsageError:
    return UsageError(
        f"{name} has no firmware and no serial line to it: it is no microcontroller",
        hint="edgekit deploy brings models to such devices",
    )
