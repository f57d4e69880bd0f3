"""Hosts that join or leave the farm."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import UsageError
from edgekit.devices.keeper_client import FarmDown
from edgekit.devices.keeper_messages import FarmStatus
from edgekit.devices.linux.hostkeys import Ask
from edgekit.farm.control import farm_status, read_hosts_again
from edgekit.farm.hosts.file import FarmHost, forget_host, remember_host
from edgekit.farm.hosts.worker import connected, first_news


@dataclass(frozen=True)
class Joined:
    host: FarmHost
    devices: tuple[str, ...]
    """The names of the devices that its farm has now."""
    path: Path
    is_up: bool
    """Whether this host's farm is up, and has the devices from now on."""


@dataclass(frozen=True)
class Left:
    host: FarmHost
    is_up: bool


def join(
    host: FarmHost,
    *,
    ask: Ask | None = None,
    fingerprint: str | None = None,
    replace: bool = False,
) -> Joined:
    """Log in, check that the host's farm is up, and remember the host."""
    with connected(host, ask=ask, fingerprint=fingerprint) as (_, relay):
        news = first_news(relay, host)
    own = _own_farm()
    if own is not None and (own.pid, own.started) == (news.pid, news.started):
        raise UsageError(
            f"{host.address} is this host itself",
            hint="name another host",
        )
    path = remember_host(host, replace=replace)
    devices = tuple(device.name for device in news.devices if not device.host)
    return Joined(host, devices, path, _reread())


def leave(name: str) -> Left:
    """Remove a host; its devices stay in its own farm."""
    return Left(forget_host(name), _reread())


def _own_farm() -> FarmStatus | None:
    with suppress(FarmDown):
        return farm_status()
    return None


def _reread() -> bool:
    """Make this host's farm read its hosts again; say whether it is up."""
    with suppress(FarmDown):
        read_hosts_again()
        return True
    return False
