"""Switches a device's power, by the user and when the device is silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal, TypeVar

from edgekit.base.children import TimeoutExpired, run
from edgekit.base.errors import DeviceError, MissingToolError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import exclusive_lock, storage_errors
from edgekit.base.paths import data_dir
from edgekit.base.programs import find_program
from edgekit.base.wording import duration
from edgekit.devices.base import DeviceSilent
from edgekit.project.devices import DeviceEntry
from edgekit.project.power import POWER_EXPECTED, Action, PlacePower, Power, parse_power

PowerAction = Literal["on", "off", "cycle"]
T = TypeVar("T")

PAUSE_SECONDS = 3.0
"""The time without power in a cycle: capacitors keep a board alive for a moment."""
BOOT_SECONDS = 180.0
"""The longest wait for a board that has power again; until then it gets no further cycle."""
_SECONDS = 180.0
_BETWEEN_TRIES = 2.0


def power_of(entry: DeviceEntry) -> Power | None:
    """Return what switches the device's power; None if its entry does not say."""
    place = getattr(entry, "place", None)
    if entry.power is None:
        return None
    return parse_power(entry.power, place)


def switch_power(entry: DeviceEntry, action: PowerAction, events: Events = SILENT) -> None:
    """Switch the device's power; UsageError if its entry does not say how."""
    power = power_of(entry)
    if power is None:
        raise UsageError(
            f"nothing is known that switches the power of {entry.name}",
            hint=f"add power = to [devices.{entry.name}]: {POWER_EXPECTED}",
        )
    with events.stage(f"power {action} {entry.name}"), _acquired(power):
        if action != "cycle":
            _switch(entry.name, power, action)
            return
        _switch(entry.name, power, "off")
        time.sleep(PAUSE_SECONDS)
        _switch(entry.name, power, "on")


def revived(entry: DeviceEntry, attempt: Callable[[], T], events: Events = SILENT) -> T:
    """Make an attempt; if the device is silent and its power can be switched, switch it off and on,
    wait until it has started, and try again."""
    try:
        return attempt()
    except DeviceSilent as silence:
        if power_of(entry) is None:
            raise
        with _alone(entry.name) as note:
            if _age(note) > BOOT_SECONDS:
                events.warn(f"{silence.message}: its power is switched off and on")
                switch_power(entry, "cycle", events)
                with storage_errors("note the power cycle", note):
                    note.touch()
        return _after_boot(entry.name, attempt, silence, events)


def _after_boot(name: str, attempt: Callable[[], T], silence: DeviceSilent, events: Events) -> T:
    ends_at = time.monotonic() + BOOT_SECONDS
    last: DeviceError = silence
    with events.stage(f"wait for {name} to start"):
        while time.monotonic() < ends_at:
            time.sleep(_BETWEEN_TRIES)
            try:
                return attempt()
            except DeviceError as error:  # a board that starts refuses connections, and hangs up
                last = error
    raise DeviceError(
        f"{name} does not answer {duration(BOOT_SECONDS)} after its power was switched off and on",
        hint=last.hint,
        details=(last.message,),
    )


@contextmanager
def _alone(name: str) -> Iterator[Path]:
    """Keep other processes of the user from switching the same device; yield the note of the last
    cycle."""
    note = data_dir() / "power" / name
    with storage_errors("note the power cycle", note):
        note.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(note.with_suffix(".lock")):
            yield note


def _age(note: Path) -> float:
    try:
        return time.time() - note.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _switch(name: str, power: Power, action: Action) -> None:
    program, *arguments = power.command(action)
    found = find_program(program)
    if found is None:
        raise MissingToolError(
            f"{program}, which switches the power of {name}, is not installed",
            hint="install its package: uhubctl, snmp, or labgrid by pipx",
        )
    try:
        done = run([str(found), *arguments], limit_s=_SECONDS, folder=Path("/"), together=True)
    except TimeoutExpired as error:
        raise DeviceError(
            f"{program} did not switch the power of {name} {action} within {_SECONDS:g} s",
            hint="run it yourself to see what it waits for",
        ) from error
    if done.status != 0:
        lines = [line.strip() for line in done.output.splitlines() if line.strip()]
        raise DeviceError(
            f"{program} did not switch the power of {name} {action}: it ended with {done.status}",
            hint=f"the entry's power = says what is run; {action} is its last word",
            details=tuple(lines[-8:]),
        )


def _acquired(power: Power) -> AbstractContextManager[object]:
    """Acquire the labgrid place for the block, if it is one that has the power."""
    if not isinstance(power, PlacePower):
        return nullcontext()
    from edgekit.devices.serial.labgrid import acquired

    return acquired(power.place)
