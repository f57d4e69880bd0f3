"""What switches a device's power: the key `power` of its entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from edgekit.base.errors import UsageError

Action = Literal["on", "off"]
POWER_EXPECTED = "labgrid, usb:HUB/PORT, snmp:apc@HOST/OUTLET, snmp:raritan@… or sh:COMMAND"

_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
_NUMBER = r"[1-9][0-9]{0,2}"


class Power(Protocol):
    def command(self, action: Action) -> tuple[str, ...]:
        """Return the program and its arguments."""
        ...


@dataclass(frozen=True)
class ShellPower:
    """A command of the user's shell, which finds on or off in $1."""

    text: str

    def command(self, action: Action) -> tuple[str, ...]:
        return ("sh", "-c", self.text, "sh", action)


@dataclass(frozen=True)
class UsbPower:
    """A port of a USB hub that switches the power of each port."""

    hub: str
    port: str

    def command(self, action: Action) -> tuple[str, ...]:
        return ("uhubctl", "-l", self.hub, "-p", self.port, "-a", action)


@dataclass(frozen=True)
class _Pdu:
    oid: str
    """The object that switches an outlet, without the outlet's number."""
    values: Mapping[Action, str]


_PDUS = {
    "apc": _Pdu(".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4", {"on": "1", "off": "2"}),
    "raritan": _Pdu(".1.3.6.1.4.1.13742.6.4.1.2.1.2.1", {"on": "1", "off": "0"}),
}


@dataclass(frozen=True)
class PduPower:
    """An outlet of a PDU. The version and the community of SNMP are those of the user's snmp.conf,
    so that no file of edgekit's has a secret."""

    kind: str
    host: str
    outlet: str

    def command(self, action: Action) -> tuple[str, ...]:
        pdu = _PDUS[self.kind]
        return ("snmpset", self.host, f"{pdu.oid}.{self.outlet}", "i", pdu.values[action])


@dataclass(frozen=True)
class PlacePower:
    """The power of a labgrid place."""

    place: str

    def command(self, action: Action) -> tuple[str, ...]:
        return ("labgrid-client", "-p", self.place, "power", action)


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Power]], ...] = (
    (re.compile(r"sh:(?P<text>[^\x00-\x1f\x7f]{1,1000})"), ShellPower),
    (re.compile(rf"usb:(?P<hub>[0-9]+(-[0-9]+(\.[0-9]+)*)?)/(?P<port>{_NUMBER})"), UsbPower),
    (
        re.compile(rf"snmp:(?P<kind>{'|'.join(_PDUS)})@(?P<host>{_HOST})/(?P<outlet>{_NUMBER})"),
        PduPower,
    ),
)


def parse_power(text: str, place: str | None = None) -> Power:
    """Parse the key of an entry; `place` is the entry's labgrid place. UsageError if it is none."""
    if text == "labgrid" and place is not None:
        return PlacePower(place)
    for form, power in _FORMS:
        if found := form.fullmatch(text):
            return power(**{key: value for key, value in found.groupdict().items() if value})
    raise UsageError(
        f"{text!r} switches no power" + (": no labgrid place is given" * (text == "labgrid")),
        hint=f"write {POWER_EXPECTED}",
    )


def is_power(text: str) -> bool:
    """Tell whether a text has the form of a power switch."""
    return text == "labgrid" or any(form.fullmatch(text) for form, _ in _FORMS)
