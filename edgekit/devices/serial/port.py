"""Opens a serial line of any kind: a tty, a pty, socket://host:port, rfc2217://host:port, and
unix://path for emulated boards."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgekit.base.errors import DeviceError
from edgekit.base.events import Events
from edgekit.base.files import storage_errors
from edgekit.base.paths import cache_dir
from edgekit.devices.base import DeviceBusy
from edgekit.devices.flash.job import FlashJob
from edgekit.devices.flash.write import write_firmware
from edgekit.devices.serial.lock import PATIENCE, line_lock

DEFAULT_BAUD = 115200
SLICE_SECONDS = 0.05
"""Longest time of one read from the line."""
_WRITE_SECONDS = 20.0


class Line(Protocol):
    """A serial port that is held, on this machine or another."""

    def is_blank(self) -> bool:
        """Tell whether the device surely has no firmware."""

    def write(self, job: FlashJob, events: Events) -> int:
        """Write and verify the firmware with the machine that has the port; return its bytes."""

    def opened(self, baud: int) -> AbstractContextManager[Any]:
        """Open the port with the interface of pyserial's."""


@dataclass(frozen=True)
class LocalLine:
    address: str
    twin: Path | None = None
    """The folder of a twin's sockets."""

    def is_blank(self) -> bool:
        from edgekit.twin.microcontroller import condition_of

        return self.twin is not None and condition_of(self.twin) == "blank"

    def write(self, job: FlashJob, events: Events) -> int:
        return write_firmware(job, events)

    def opened(self, baud: int) -> AbstractContextManager[Any]:
        return opened_port(self.address, baud)


@contextmanager
def opened_port(address: str, baud: int) -> Iterator[Any]:
    """Open a port of pyserial's; DeviceError explains a failure.

    Hold the line with `held` first.
    """
    import serial

    try:
        port = _port_at(address, baud)
        if "://" not in address:
            port.exclusive = True
            port.write_timeout = _WRITE_SECONDS  # other kinds have none, or refuse it
        port.open()
    except (serial.SerialException, OSError, ValueError) as error:
        raise _not_opened(address, error) from error
    try:
        yield port
    finally:
        port.close()


def _port_at(address: str, baud: int) -> Any:
    import serial

    from edgekit.devices.serial.unix import SCHEME, UnixSerial

    if not address.startswith(SCHEME):
        return serial.serial_for_url(
            address, baudrate=baud, timeout=SLICE_SECONDS, do_not_open=True
        )
    port = UnixSerial(baudrate=baud, timeout=SLICE_SECONDS)
    port.port = address
    return port


@contextmanager
def held(address: str, patience: float = PATIENCE, *, looking: bool = False) -> Iterator[None]:
    """Hold the line for the block against every other edgekit of this user. `patience` is how many
    seconds to wait for a user of the line; `looking` is for a farm's checks, which give way to
    users."""
    folder = cache_dir() / "serial"
    name = hashlib.sha256(_known(address).encode()).hexdigest()[:24]
    with ExitStack() as stack:
        with storage_errors("take the serial line", folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(
                line_lock(folder / f"{name}.lock", patience, looking=looking)
            )
        if lock is None:
            raise DeviceBusy(
                f"the serial port {address} is in use by another edgekit",
                hint="wait until it is done, or end it",
            )
        yield


def _known(address: str) -> str:
    return address if "://" in address else str(Path(address).resolve())


def _not_opened(address: str, error: Exception) -> DeviceError:
    """Explain pyserial's error by the system's error number."""
    number = _number(error)
    if number in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return DeviceError(
            f"there is no serial port {address}",
            hint="plug the board in; ls /dev/serial/by-id lists the ports",
        )
    if number in (errno.EACCES, errno.EPERM):
        return DeviceError(
            f"this user may not open the serial port {address}",
            hint="sudo usermod -aG dialout $USER, then log in again",
        )
    if number in (errno.EBUSY, errno.EAGAIN):
        return DeviceBusy(
            f"the serial port {address} is in use by another program",
            hint=f"run fuser {address} to see which process, and end it",
        )
    if number == errno.ECONNREFUSED or isinstance(error, socket.gaierror):
        return DeviceError(
            f"nothing listens at {address}", hint="start the server of the serial port"
        )
    return DeviceError(
        f"the serial port {address} can't be opened: {error}",
        hint="name a device file, socket://host:port, rfc2217://host:port or unix:///path",
    )


def _number(error: BaseException | None) -> int | None:
    """Return the system's error number, which pyserial may have wrapped or only put into words."""
    while error is not None:
        number = getattr(error, "errno", None)
        if isinstance(number, int):
            return number
        for number in (errno.EAGAIN, errno.ECONNREFUSED, errno.EACCES, errno.ENOENT):
            if f"[Errno {number}]" in str(error):
                return number
        error = error.__cause__ or error.__context__
    return None
