"""Writes a bundle's firmware to a microcontroller, and reads back which firmware runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.aot.firmware.firmware_file import read_firmware
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import BoardEntry
    from edgekit.devices.device import Device
    from edgekit.profiles.board import Board


@dataclass(frozen=True)
class FlashedModel:
    name: str
    sha256: str
    arena: int


@dataclass(frozen=True)
class BoardReport:
    """The report of a board with edgekit's firmware about itself."""

    device: str
    port: str
    firmware: str
    """The build ID of the running firmware."""
    core: str
    clock: int
    """The clock in Hz, as the firmware set it."""
    stack: int
    models: tuple[FlashedModel, ...]


@dataclass(frozen=True)
class FlashReport:
    board: BoardReport
    written: int
    """Bytes written; 0 if the board had the firmware already."""
    seconds: float


def flash(
    bundle: Bundle, device: Device, events: Events = SILENT, *, again: bool = False
) -> FlashReport:
    """Write and verify the firmware unless the board has it, or always with `again`.

    Then let the board report which firmware runs."""
    began = time.monotonic()
    target = device.firmware()
    with bundle.held_firmware() as path:
        target.check_board(bundle)
        firmware = read_firmware(path)
        with target.flashed(firmware, events, again=again) as (client, hello, written):
            models = [client.model(index) for index in range(hello.models)]
    board = BoardReport(
        device.name,
        target.port,
        hello.build_id,
        hello.core,
        hello.clock,
        hello.stack,
        tuple(FlashedModel(model.name, model.sha256, model.arena) for model in models),
    )
    return FlashReport(board, written, time.monotonic() - began)


def check_microcontroller(board: Board | BoardEntry) -> None:
    """Raise UsageError if a board is no microcontroller, before a device or twin is looked for."""
    if board.has_os:
        raise UsageError(
            f"{board.name} is not a microcontroller: it has neither firmware nor a serial line",
            hint="edgekit deploy brings models to such devices",
        )
