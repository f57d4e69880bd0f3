"""What labgrid's client prints is read strictly: it comes from elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.children import Done
from edgekit.base.errors import DeviceError
from edgekit.devices.serial.labgrid import Place, _resources
from edgekit.project.devices import PlaceEntry, SshEntry

SHOWN = """\
Place 'desk':
  acquired: host/ada
Acquired resource 'NetworkService' (rack/desk/NetworkService/NetworkService):
  {'acquired': 'desk',
   'avail': True,
   'params': {'address': '10.0.0.5',
              'extra': {'proxy': 'rack', 'proxy_required': True},
              'port': 2222,
              'username': 'lab'}}
Acquired resource 'console' (rack/desk/NetworkSerialPort/console):
  {'params': {'host': 'fe80::1', 'port': 4001, 'protocol': 'rfc2217'}}
"""
ENTRY = PlaceEntry("bench", "rpi4", place="desk")


def shown(text: str) -> Place:
    return Place("desk", _resources(Done(0, text, "")))


def test_an_address_comes_from_the_network_service() -> None:
    entry = shown(SHOWN).reached(ENTRY)
    assert (entry.host, entry.port, entry.user, entry.proxy) == ("10.0.0.5", 2222, "lab", "rack")
    own = shown(SHOWN).reached(replace(ENTRY, login=SshEntry("bench", "rpi4", user="me")))
    assert own.user == "me"


def test_a_serial_port_comes_from_the_network_serial_port() -> None:
    assert shown(SHOWN).serial == "rfc2217://[fe80::1]:4001"


@pytest.mark.parametrize(
    "params",
    [
        "{'address': '-oProxyCommand=x', 'username': 'lab'}",
        "{'address': '10.0.0.5', 'username': 'a b'}",
        "{'address': '10.0.0.5', 'port': 99999}",
        "{'address': '10.0.0.5', 'port': True}",
        "__import__('os').system('true')",
        "{",
    ],
)
def test_what_makes_no_sense_is_refused(params: str) -> None:
    text = f"Acquired resource 'x' (a/b/NetworkService/x):\n  {{'params': {params}}}\n"
    with pytest.raises(DeviceError, match="is invalid: "):
        shown(text).reached(ENTRY)


@given(st.text())
def test_whatever_is_printed_is_read_without_a_crash(text: str) -> None:
    with pytest.raises(DeviceError):
        shown(f"Acquired resource 'x' (a/b/NetworkService/x):\n{text}").reached(ENTRY)
