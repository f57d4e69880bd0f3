"""The route that ~/.ssh/config gives for an address: the hosts on the way and their keys."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import DeviceError, UsageError
from edgekit.project.devices import SSH_PORT, SshEntry, Target, is_host, is_user, parse_target

if TYPE_CHECKING:
    from edgekit.devices.linux.match_exec import IsolatedConfig

_INCLUDE = re.compile(r"\s*include[\s=]+(.+)", re.IGNORECASE)
_DEEPEST_INCLUDE = 8
_MOST_HOPS = 8


@dataclass(frozen=True)
class Hop:
    """One host on the way to a device, or the device itself."""

    host: str
    port: int
    user: str
    keys: tuple[str, ...]
    """Key files to offer first."""
    only_these_keys: bool
    key_name: str
    """Name under which its host key is stored."""
    proxy_command: str | None = None
    """Program whose input and output are the connection."""

    def __str__(self) -> str:
        return str(Target(self.host, self.user, None if self.port == SSH_PORT else self.port))


def route_to(entry: SshEntry, config_file: Path | None = None) -> tuple[Hop, ...]:
    """Return the hosts to log in to, one through the other; the device is the last."""
    target = entry.target
    if target is None:
        raise DeviceError(
            f"the device {entry.name} has no address",
            hint=f'add host = "ADDRESS" to [devices.{entry.name}], or run '
            f"edgekit device add {entry.name} --board {entry.board} user@host",
        )
    config = _Config(config_file or Path.home() / ".ssh" / "config")
    return tuple(config.hops(target, entry.key, entry.proxy))


class _Config:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = _read_config(path)

    def hops(
        self, target: Target, key: str | None, proxy: str | None, depth: int = 0
    ) -> Iterator[Hop]:
        if depth > _MOST_HOPS:
            raise self._wrong(f"the way to {target.host} never ends (ProxyJump)")
        found = self._lookup(target.host)
        jumps = proxy or found.get("proxyjump", "none")
        if jumps.lower() != "none":
            for jump in jumps.split(","):
                yield from self.hops(self._jump(jump), None, None, depth + 1)
        command = found.get("proxycommand", "none")
        use_command = jumps.lower() == "none" and command.lower() != "none"
        identities = found.get("identityfile", [])
        keys = [key] if key else identities
        host, user = found.get("hostname", target.host), target.user or found.get("user")
        port = str(target.port or found.get("port", SSH_PORT))
        if not is_host(host):
            raise self._wrong(f"its HostName for {target.host} is not a host: {host!r}")
        if user is not None and not is_user(user):
            raise self._wrong(f"its User for {target.host} is not a user: {user!r}")
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise self._wrong(f"its Port for {target.host} is not a port: {port!r}")
        alias = found.get("hostkeyalias")
        named = host if int(port) == SSH_PORT else f"[{host}]:{port}"
        yield Hop(
            host=host,
            port=int(port),
            user=user or getpass.getuser(),
            keys=tuple(str(Path(name).expanduser()) for name in keys),
            only_these_keys=key is not None or found.get("identitiesonly", "no") == "yes",
            key_name=alias or named,
            proxy_command=command if use_command else None,
        )

    def _lookup(self, host: str) -> Mapping[str, Any]:
        from paramiko.ssh_exception import SSHException

        try:
            found: Mapping[str, Any] = self._config.lookup(host)
            return found
        except (SSHException, ImportError, KeyError, ValueError, OSError) as error:
            raise self._wrong(str(error)) from error

    def _jump(self, text: str) -> Target:
        try:
            return parse_target(text.strip().removeprefix("ssh://"))
        except UsageError as error:
            raise self._wrong(f"its ProxyJump names no host: {error.message}") from error

    def _wrong(self, what: str) -> DeviceError:
        return DeviceError(
            f"{self._path} does not say how to reach the device: {what}", hint="correct that file"
        )


def _read_config(path: Path) -> IsolatedConfig:
    from paramiko.ssh_exception import SSHException

    from edgekit.devices.linux.match_exec import IsolatedConfig

    config = IsolatedConfig()
    try:
        config.parse(_lines(path, 0))
    except (SSHException, ValueError, IndexError) as error:
        raise DeviceError(
            f"{path} is not an SSH configuration: {error}", hint="correct that file"
        ) from error
    return config


def _lines(path: Path, depth: int) -> Iterable[str]:
    """Return the lines of a configuration file, with included files in their place."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise DeviceError(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    for line in text.splitlines():
        include = _INCLUDE.fullmatch(line)
        if include is None:
            yield line + "\n"
        elif depth < _DEEPEST_INCLUDE:
            for pattern in include[1].split():
                wanted = Path(pattern.strip('"')).expanduser()
                full = wanted if wanted.is_absolute() else Path.home() / ".ssh" / wanted
                for file in sorted(Path(full.anchor).glob(str(full.relative_to(full.anchor)))):
                    yield from _lines(file, depth + 1)
