"""The line of a microcontroller for another host: what the gate of a device serves it with.

The gate holds the line for as long as the caller is connected. Each channel of the caller is one
order; the gate's first line in it is a JSON object, with an error if the order failed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import paramiko

from edgekit.aot.firmware.firmware_file import read_firmware
from edgekit.base.errors import EdgekitError
from edgekit.devices.serial.joined_line import BLANK, LONGEST_FIRMWARE, OPEN, WRITE
from edgekit.farm.control import refusal

if TYPE_CHECKING:
    from paramiko import Channel

    from edgekit.devices.device import HasLine
    from edgekit.devices.serial.port import Line

OPENED: int = paramiko.common.OPEN_SUCCEEDED
_LET_IN: int = paramiko.common.AUTH_SUCCESSFUL
_PROHIBITED: int = paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
_BLOCK = 1 << 16


class GateServer(paramiko.ServerInterface):  # type: ignore[misc]
    """The side of SSH that all gates share: the login to the host was the check."""

    def __init__(self) -> None:
        self.ports: dict[int, Channel] = {}
        """The channels to ports of the board, by the number of the caller's channel."""

    def is_alive(self) -> bool:
        """Tell whether the device can still be used."""
        return True

    def get_allowed_auths(self, username: str) -> str:
        return "none"

    def check_auth_none(self, username: str) -> int:
        return _LET_IN

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPENED if kind == "session" else _PROHIBITED


class LineServer(GateServer):
    """Opens the line of a microcontroller, and writes its firmware, for the caller."""

    def __init__(self, device: HasLine, line: Line) -> None:
        super().__init__()
        self._device = device
        self._line = line

    def check_channel_exec_request(self, channel: Channel, command: bytes) -> bool:
        word, _, size = command.decode(errors="replace").partition(" ")
        orders: dict[str, Callable[[], None]] = {
            OPEN: lambda: self._open(channel),
            BLANK: lambda: _say(channel, {"blank": self._line.is_blank()}),
            WRITE: lambda: self._write(channel, int(size)),
        }
        if word not in orders or (word == WRITE and not size.isdecimal()):
            return False
        in_thread(lambda: _obey(channel, orders[word]))
        return True

    def _open(self, channel: Channel) -> None:
        over = threading.Event()
        with self._line.opened(self._device.baud) as port:
            _say(channel, {"open": True})
            reader = in_thread(lambda: _pass_on(port, channel, over))
            with suppress(OSError, EOFError):
                while data := channel.recv(_BLOCK):
                    port.write(data)
                    port.flush()
            over.set()
            reader.join()

    def _write(self, channel: Channel, size: int) -> None:
        data = bytearray()
        while len(data) < min(size, LONGEST_FIRMWARE):
            block = channel.recv(min(_BLOCK, size - len(data)))
            if not block:
                return  # the caller is gone
            data += block
        with TemporaryDirectory(prefix="edgekit-firmware-") as folder:
            path = Path(folder) / "firmware.elf"
            path.write_bytes(data)
            written = self._device.write(read_firmware(path), line=self._line)
        _say(channel, {"written": written})


def _obey(channel: Channel, order: Callable[[], None]) -> None:
    status = 1
    try:
        order()
        status = 0
    except EdgekitError as error:
        _say(channel, refusal(error))
    except OSError as error:
        _say(channel, {"error": str(error), "hint": "try again"})
    finally:
        with suppress(OSError, EOFError):
            channel.send_exit_status(status)
        channel.close()


def _pass_on(port: Any, channel: Channel, over: threading.Event) -> None:
    """Send what comes from the line; close the channel if the line breaks."""
    try:
        while not over.is_set():
            data = port.read(1)
            while data and len(data) < _BLOCK and (more := port.in_waiting):
                data += port.read(more)
            if data:
                channel.sendall(data)
    except (OSError, EOFError):
        channel.close()


def _say(channel: Channel, document: dict[str, object]) -> None:
    with suppress(OSError, EOFError):
        channel.sendall(json.dumps(document).encode() + b"\n")


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
