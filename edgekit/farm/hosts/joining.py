"""A host joins the farm, or leaves it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import UsageError
from edgekit.farm.control import FarmDown, farm_status, read_hosts_again
from edgekit.farm.hosts.file import FarmHost, forget_host, remember_host
from edgekit.farm.hosts.worker import connected, first_news
from edgekit.farm.status import FarmStatus

if TYPE_CHECKING:
    from edgekit.devices.linux.hostkeys import Ask


@dataclass(frozen=True)
class Joined:
    host: FarmHost
    devices: tuple[str, ...]
    """Those that its farm has now."""
    path: Path
    is_up: bool
    """Whether a farm is up here that has them from now on."""


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
    """Log in, see whether a farm is up over there, and remember the host."""
    with connected(host, ask=ask, fingerprint=fingerprint) as (_, gate):
        news = first_news(gate, host)
    here = _here()
    if here is not None and (here.pid, here.started) == (news.pid, news.started):
        raise UsageError(
            f"{host.address} is where this farm is up already",
            hint="name another host",
        )
    path = remember_host(host, replace=replace)
    devices = tuple(device.name for device in news.devices if not device.host)
    return Joined(host, devices, path, _told())


def leave(name: str) -> Left:
    """Its devices stay in its own farm."""
    return Left(forget_host(name), _told())


def _here() -> FarmStatus | None:
    with suppress(FarmDown):
        return farm_status()
    return None


def _told() -> bool:
    """Whether a farm is up here, which looks again at who belongs to it."""
    with suppress(FarmDown):
        read_hosts_again()
        return True
    return False
