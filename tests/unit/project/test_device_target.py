"""Addresses of devices: what a person writes is taken apart right, or refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import UsageError
from edgekit.profiles.board import load_board
from edgekit.project.devices import Target, make_entry, parse_target

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]{1,10}){0,3}", fullmatch=True)
users = st.none() | st.from_regex(r"[a-z_][a-z0-9._-]{0,20}", fullmatch=True)
ports = st.none() | st.integers(1, 65535)
addresses = st.ip_addresses().map(str)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("pi@raspberrypi.local", Target("raspberrypi.local", "pi")),
        ("pi@10.0.0.7:2222", Target("10.0.0.7", "pi", 2222)),
        ("board", Target("board")),
        ("root@[fe80::1%eth0]:22", Target("fe80::1%eth0", "root", 22)),
        ("[::1]", Target("::1")),
    ],
)
def test_an_address_is_taken_apart(text: str, target: Target) -> None:
    assert parse_target(text) == target


@given(names | addresses, users, ports)
def test_what_is_written_is_read_back(host: str, user: str | None, port: int | None) -> None:
    target = Target(host, user, port)

    assert parse_target(str(target)) == target


@given(st.text(max_size=60))
def test_whatever_is_written_is_read_or_refused_with_a_hint(text: str) -> None:
    try:
        target = parse_target(text)
    except UsageError as error:
        assert error.hint
        return
    for part in (target.host, target.user or "u"):
        assert part.isascii()
        assert not part.startswith("-")
        assert not set(part) & set(" \t\n\r\"'`$;&|<>(){}*?!#\\/=@,")
    assert target.port is None or 0 < target.port < 65536
    if ":" in target.host:
        ipaddress.IPv6Address(target.host.partition("%")[0])


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=reboot",
        "-oProxyCommand=reboot@host",
        "pi@-oProxyCommand=reboot",
        "pi@host;reboot",
        "pi@host name",
        "pi@ho'st",
        "pi@host\nreboot",
        "pi@$(reboot)",
        "pi@host:0",
        "pi@host:65536",
        "pi@host:",
        "pi@host:ssh",
        "pi@::1",
        "pi@[host]",
        "pi@[::1",
        "@host",
        "pi@",
        "a@b@c",
        "",
        "pi@[fe80::1%;reboot]",
    ],
)
def test_what_could_be_something_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a device"):
        parse_target(text)


@pytest.mark.parametrize("name", ["local", "Kitchen", "-x", "a b", "a\nb", "", "x" * 64, "../up"])
def test_a_device_has_a_name_that_is_one(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a device"):
        make_entry(name, load_board("rpi4"), "pi@host")


@pytest.mark.parametrize("directory", ["data", "/a b", "/$(reboot)", "/a\n"])
def test_a_folder_over_there_is_a_plain_path(directory: str) -> None:
    with pytest.raises(UsageError, match="folder on a device"):
        make_entry("pi", load_board("rpi4"), "pi@host", directory=directory)
