"""Devices, and what they can do besides running bundles.

A caller asks a device for a capability: the method returns it, or raises UsageError with a hint
that says which devices have it. A new kind of device overrides the methods of what it can do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer

if TYPE_CHECKING:
    from edgekit.aot.firmware.firmware_file import FirmwareFile
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import Session
    from edgekit.devices.lending import Lender
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.device_log import LogEntry
    from edgekit.devices.linux.hostkeys import Ask
    from edgekit.devices.linux.ready_agent import ReadyAgent
    from edgekit.devices.linux.version_records import Version
    from edgekit.devices.linux.visit import CleanReport
    from edgekit.devices.serial.client import Client
    from edgekit.devices.serial.messages import Hello
    from edgekit.devices.serial.port import Line
    from edgekit.project.devices import LinuxEntry


class RunsAgent(Protocol):
    """A device that runs edgekit's agent, which also serves TVM's RPC."""

    @property
    def name(self) -> str: ...

    def with_agent(
        self, *, runtime: bool = False, events: Events = SILENT
    ) -> AbstractContextManager[ReadyAgent]:
        """Open the device with the agent on it and no model, held for the block. With `runtime`,
        the program with TVM's runtime is there too."""
        ...

    def found_again(self) -> RunsAgent:
        """Return the device with its present address, which a restart may have changed."""
        ...


class KeepsVersions(RunsAgent, Protocol):
    """A device that keeps several versions of a model."""

    def ask_measurer(self) -> Measurer: ...

    def versions(self) -> tuple[Version, ...]:
        """Return every deployed version whose files remain, the newest first."""
        ...


class KeepsLog(Protocol):
    @property
    def name(self) -> str: ...

    def ask_measurer(self) -> Measurer: ...

    def read_log(
        self, lines: int, *, follow: Callable[[LogEntry], None] | None = None
    ) -> tuple[LogEntry, ...]:
        """Read the latest entries of the log; with `follow`, pass it those and new ones."""
        ...


class KeepsFiles(Protocol):
    """A device with a folder for edgekit's files."""

    def clean(
        self, *, keep: int = 0, everything: bool = False, events: Events = SILENT
    ) -> CleanReport:
        """Remove edgekit's files, except the `keep` models and agents used last and current
        versions. With `everything`, remove those and the log too."""
        ...


class Checked(Protocol):
    """The report of a check. Its fields are what --json prints."""

    @property
    def heading(self) -> str: ...

    def facts(self) -> list[tuple[str, object]]:
        """Return what was found out, for people."""
        ...


class Checkable(Protocol):
    """A device that can be checked over SSH."""

    def check(self, *, ask: Ask | None = None, fingerprint: str | None = None) -> Checked:
        """Log in and check the device; DeviceError for anything that would stop a deployment.

        `ask` and `fingerprint` decide about a host key that is not known yet.
        """
        ...


class HasShell(Protocol):
    """A device that the user logs in to, for commands and files of their own."""

    @property
    def name(self) -> str: ...

    @property
    def entry(self) -> LinuxEntry: ...

    def logged_in(self, events: Events = SILENT) -> Connection:
        """Log in; the connection is closed by its user."""
        ...

    def held(self, purpose: str, events: Events = SILENT) -> AbstractContextManager[None]:
        """Wait for the device, and keep others from it for the block."""
        ...


class HasFirmware(Protocol):
    """A device whose firmware is replaced by a bundle's."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> str: ...

    @property
    def unit(self) -> Literal["cycles", "instructions"]:
        """The unit in which it counts an inference."""
        ...

    def check_board(self, bundle: Bundle) -> None:
        """Refuse a bundle for another board, whose firmware would not even start."""
        ...

    def flashed(
        self, firmware: FirmwareFile, events: Events = SILENT, *, again: bool = False
    ) -> AbstractContextManager[tuple[Client, Hello, int]]:
        """Lease the device with this firmware on it, and provide the number of bytes written. It
        is written if the device has another one, or `again` is set."""
        ...


class HasLine(Protocol):
    """A device on a serial line."""

    @property
    def name(self) -> str: ...

    @property
    def measured_by(self) -> Measurer: ...

    @property
    def baud(self) -> int: ...

    @property
    def seconds_between_looks(self) -> float:
        """The interval of a farm's checks."""
        ...

    def meet(self, *, ask: Ask | None = None, fingerprint: str | None = None) -> DeviceError | None:
        """Log in to the host of the port; return the error if the port can't be opened."""
        ...

    def held(self) -> AbstractContextManager[Line]:
        """Hold the line for the block; DeviceError if it is in use."""
        ...

    def looking(self) -> AbstractContextManager[Callable[[], AbstractContextManager[Line]]]:
        """Yield a function that takes the line for a moment, and gives way to users."""
        ...

    def write(
        self, firmware: FirmwareFile, events: Events = SILENT, line: Line | None = None
    ) -> int:
        """Write and verify the firmware; return its bytes."""
        ...

    def check_answer(self, line: Line, seconds: float) -> Measurer:
        """Return what the firmware says of its core; DeviceError if it does not answer."""
        ...


class Device(ABC):
    """A device. It has `name`, and runs bundles."""

    name: str
    what: ClassVar[str]
    """The kind of device, in words."""
    instead: ClassVar[str] = "`edgekit device list` shows all devices"
    """The hint for a user who asked for a capability that this kind of device lacks."""

    @abstractmethod
    def opened(
        self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> AbstractContextManager[Session]:
        """Lease the device and open it with the bundle on it; DeviceError if that fails.

        The lease ends with the block. `purpose` is shown to others who wait for the device.
        """

    @property
    def is_emulated(self) -> bool:
        """Whether the device is emulated: its times are not the board's."""
        return False

    @property
    def measured_by(self) -> Measurer:
        """What its times come from, as far as is known before it is opened."""
        return "emulator" if self.is_emulated else "hardware"

    def ask_measurer(self) -> Measurer:
        """Return what its times come from, as the device itself says; DeviceError if it is gone."""
        return self.measured_by

    def prepare(self, events: Events = SILENT) -> None:  # noqa: B027 - many need nothing
        """Make what the device needs on this host, once for all devices of a board."""

    def prepared_early(self, *, events: Events = SILENT) -> AbstractContextManager[Device]:
        """Return the device, which gets ready in the background for the block."""
        return nullcontext(self)

    def lent_by(self, lender: Lender) -> Device:
        """Return the device with another lender, whom it asks before each use."""
        return self

    @abstractmethod
    def check_free(self) -> None:
        """Raise DeviceBusy if the device is in use, DeviceError if it can't be used."""

    def agent(self) -> RunsAgent:
        raise self._lacks("runs no agent", "boards with Linux do")

    def version_keeper(self) -> KeepsVersions:
        raise self._lacks("keeps no versions of models", "boards with Linux do")

    def log_keeper(self) -> KeepsLog:
        raise self._lacks("keeps no log", "boards with Linux do")

    def file_keeper(self) -> KeepsFiles:
        raise self._lacks("keeps no files of edgekit", "boards with Linux do")

    def checkable(self) -> Checkable:
        raise self._lacks("is not reached over SSH", "boards with Linux are")

    def shell(self) -> HasShell:
        raise self._lacks("has no login", "boards with Linux have")

    def firmware(self) -> HasFirmware:
        raise self._lacks("has no firmware of edgekit", "microcontrollers have")

    def line(self) -> HasLine:
        raise self._lacks("has no serial line", "microcontrollers have")

    def _lacks(self, what: str, which: str) -> UsageError:
        return UsageError(f"{self.name} is {self.what}: it {what}", hint=f"{which}; {self.instead}")
