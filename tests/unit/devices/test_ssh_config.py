"""~/.ssh/config decides how a device is reached, as it does for OpenSSH."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.base.errors import DeviceError
from edgekit.devices.linux.ssh_config import route_to
from edgekit.project.devices import SshEntry


def entry(host: str | None = "pi", **more: object) -> SshEntry:
    return SshEntry("kitchen", "rpi4", host, **more)  # type: ignore[arg-type]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh" / "config"


def test_without_a_config_the_address_is_what_it_says(config: Path) -> None:
    (hop,) = route_to(entry("10.0.0.7", user="pi", port=2222, key="~/k"))

    assert (hop.host, hop.user, hop.port) == ("10.0.0.7", "pi", 2222)
    assert hop.keys == (str(config.parent.parent / "k"),)
    assert hop.only_these_keys
    assert hop.key_name == "[10.0.0.7]:2222"


def test_a_config_fills_in_what_the_entry_leaves_open(config: Path) -> None:
    config.write_text(
        "Host pi\n HostName 10.0.0.7\n User me\n Port 2200\n IdentityFile ~/.ssh/a\n"
        " IdentityFile ~/.ssh/b\n IdentitiesOnly yes\n HostKeyAlias the-pi\n"
    )

    (hop,) = route_to(entry())
    (asked,) = route_to(entry(user="root", port=22))

    assert (hop.host, hop.user, hop.port) == ("10.0.0.7", "me", 2200)
    assert [Path(key).name for key in hop.keys] == ["a", "b"]
    assert hop.only_these_keys
    assert hop.key_name == "the-pi"
    assert (asked.user, asked.port) == ("root", 22)


def test_included_files_count(config: Path) -> None:
    config.write_text("Include conf.d/*\n")
    (config.parent / "conf.d").mkdir()
    (config.parent / "conf.d" / "pi").write_text("Host pi\n HostName 10.0.0.7\n")

    assert route_to(entry())[0].host == "10.0.0.7"


def test_jumps_come_first_and_each_is_looked_up(config: Path) -> None:
    config.write_text(
        "Host pi\n ProxyJump gate,me@second:2222\nHost gate\n HostName gate.example\n User g\n"
    )

    hops = route_to(entry())

    assert [(hop.user, hop.host, hop.port) for hop in hops[:2]] == [
        ("g", "gate.example", 22),
        ("me", "second", 2222),
    ]
    assert hops[2].host == "pi"


def test_the_entrys_own_proxy_wins(config: Path) -> None:
    config.write_text("Host pi\n ProxyCommand nc %h %p\n")

    assert route_to(entry())[0].proxy_command == "nc pi 22"
    jump, device = route_to(entry(proxy="me@gate"))
    assert (jump.host, device.proxy_command) == ("gate", None)


@pytest.mark.parametrize(
    "text",
    [
        "Host pi\n ProxyJump pi\n",
        "Host pi\n HostName -oProxyCommand=x\n",
        "Host pi\n User a;b\n",
        "Host pi\n Port ssh\n",
        "Host pi\n ProxyJump a b c\n",
    ],
)
def test_a_config_that_leads_nowhere_is_told_by_its_name(config: Path, text: str) -> None:
    config.write_text(text)

    with pytest.raises(DeviceError) as caught:
        route_to(entry())

    assert str(config) in caught.value.message
    assert caught.value.hint


def test_a_device_without_an_address_says_what_to_add() -> None:
    with pytest.raises(DeviceError, match="the device kitchen has no address") as caught:
        route_to(entry(None))

    assert "edgekit device add kitchen --board rpi4" in str(caught.value.hint)
