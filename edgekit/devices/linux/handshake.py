"""The login to one host: a socket, the host key's check, authentication with a key."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.devices.base import DeviceSilent
from edgekit.devices.linux.hostkeys import Ask, KnownHosts
from edgekit.devices.linux.proxy_command import ProxyCommandSocket
from edgekit.devices.linux.ssh_config import Hop

if TYPE_CHECKING:
    from paramiko import PKey, Transport

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_LOG_IN = 20.0

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_MOST_KEYS = 12
# Authenticated encryption in one pass costs both ends less than a cipher and a MAC after it.
_FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_WEAK_CIPHERS = ("3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc")


@dataclass(frozen=True)
class Trust:
    """How an unknown host key may become a trusted one."""

    known_hosts: KnownHosts
    ask: Ask | None = None
    fingerprint: str | None = None


class WatchedSocket:
    """A socket that remembers when it last received something."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.last_heard = time.monotonic()

    def recv(self, size: int) -> bytes:
        data: bytes = self._inner.recv(size)
        if data:
            self.last_heard = time.monotonic()
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def log_in(hop: Hop, through: Transport | None, trust: Trust) -> tuple[Transport, WatchedSocket]:
    """Return a transport that is logged in to `hop`; DeviceError with the reason if that fails."""
    from paramiko import SSHException

    reached: Any = None
    try:
        reached = _reach(hop, through)
        watched = WatchedSocket(reached)
        transport = _start(hop, watched)
        try:
            _agree(hop, transport, trust)
            _authenticate(hop, transport)
        except BaseException:
            transport.close()
            raise
    except (OSError, EOFError, SSHException) as error:
        if isinstance(reached, ProxyCommandSocket) and _is_silence(error):
            raise _no_connection_by(reached, hop) from error
        raise explained(error, hop) from error
    return transport, watched


def explained(error: Exception, hop: Hop) -> EdgekitError:
    """Return the error that explains why a host was not reached."""
    from paramiko import ChannelException, SSHException

    where = f"{hop.host}, port {hop.port}"
    if isinstance(error, socket.gaierror):
        return DeviceError(
            f"the host name {hop.host} is unknown: {error.strerror}",
            hint="check the name, or use the device's address",
        )
    if isinstance(error, ConnectionRefusedError):
        return DeviceError(
            f"{where} refuses connections",
            hint="check the port, and that an SSH server runs on the device",
        )
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return DeviceSilent(
            f"there is no route to {hop.host}",
            hint="check that the device is on, its address, and both networks",
        )
    if isinstance(error, TimeoutError):
        return DeviceSilent(
            f"{where} did not answer within {SECONDS_TO_CONNECT:g} s",
            hint="check that the device is on, its address, and the network between",
        )
    if isinstance(error, ChannelException):
        return DeviceError(
            f"the host in between does not connect to {where}: {error.text}",
            hint="check the address as that host sees it, and that it allows forwarding",
        )
    if _is_silence(error):
        return DeviceSilent(
            f"what answers at {where} does not speak SSH, or hung up",
            hint="check the port; an SSH server that is overloaded hangs up too",
        )
    if isinstance(error, SSHException):
        return DeviceError(
            f"the SSH connection to {hop} failed: {error}",
            hint="`ssh -v` to the same address says more",
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return DeviceError(
        f"{where} cannot be reached: {reason.lower()}", hint="check the device and the network"
    )


def _is_silence(error: Exception) -> bool:
    return isinstance(error, EOFError) or "banner" in str(error).lower()


def _no_connection_by(program: ProxyCommandSocket, hop: Hop) -> DeviceError:
    said = program.last_words()
    return DeviceError(
        f"the ProxyCommand for {hop.host} does not bring an SSH connection"
        + (f": {said}" if said else ""),
        hint="name its program by an absolute path, or one in a folder of PATH that is absolute: "
        "it runs in the folder / and cannot ask at the terminal",
    )


def _reach(hop: Hop, through: Transport | None) -> Any:
    if through is not None:
        return through.open_channel(
            "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=SECONDS_TO_CONNECT
        )
    if hop.proxy_command is not None:
        return ProxyCommandSocket(hop.proxy_command)
    reached = socket.create_connection((hop.host, hop.port), timeout=SECONDS_TO_CONNECT)
    reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return reached


def _start(hop: Hop, watched: WatchedSocket) -> Transport:
    from paramiko import SSHException, Transport

    # paramiko would log to stderr what its exceptions say.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    try:
        transport = Transport(watched)
    except (SSHException, OSError):
        watched.close()
        raise
    transport.daemon = True
    transport.banner_timeout = SECONDS_TO_CONNECT
    transport.auth_timeout = SECONDS_TO_LOG_IN
    transport.channel_timeout = SECONDS_TO_CONNECT
    options = transport.get_security_options()
    others = [c for c in options.ciphers if c not in (*_FAST_CIPHERS, *_WEAK_CIPHERS)]
    options.ciphers = tuple([c for c in _FAST_CIPHERS if c in options.ciphers] + others)
    return transport


def _agree(hop: Hop, transport: Transport, trust: Trust) -> None:
    options = transport.get_security_options()
    trusted_kinds = {
        name
        for key in trust.known_hosts.keys_of(hop.key_name)
        for name in (
            ("rsa-sha2-512", "rsa-sha2-256") if key.get_name() == "ssh-rsa" else (key.get_name(),)
        )
    }
    # A server has keys of several kinds and shows the kind that is requested first.
    options.key_types = tuple(sorted(options.key_types, key=lambda kind: kind not in trusted_kinds))
    transport.start_client(timeout=SECONDS_TO_LOG_IN)
    trust.known_hosts.check(
        hop.key_name,
        transport.get_remote_server_key(),
        ask=trust.ask,
        fingerprint=trust.fingerprint,
    )


def _authenticate(hop: Hop, transport: Transport) -> None:
    from paramiko import AuthenticationException, BadAuthenticationType

    offered: list[str] = []
    unreadable: list[str] = []
    for where, key in _keys(hop, unreadable):
        try:
            if not transport.auth_publickey(hop.user, key):
                return
            raise _refused(hop, offered, unreadable, "it wants more than a key")
        except BadAuthenticationType as error:
            allowed = ", ".join(error.allowed_types)
            raise _refused(hop, offered, unreadable, f"it takes {allowed} only") from error
        except AuthenticationException:
            offered.append(where)
        if not transport.is_active():
            raise _refused(hop, offered, unreadable, "it hung up after too many keys")
    raise _refused(hop, offered, unreadable, None)


def _keys(hop: Hop, unreadable: list[str]) -> Iterator[tuple[str, PKey]]:
    """Return the keys to offer, in OpenSSH's order: named ones, the agent's, the default files."""
    from paramiko import Agent, SSHException

    seen: set[bytes] = set()

    def new(key: PKey) -> bool:
        fresh = len(seen) < _MOST_KEYS and key.asbytes() not in seen
        seen.add(key.asbytes())
        return fresh

    named = list(hop.keys)
    if not hop.only_these_keys:
        default = Path.home() / ".ssh"
        named += [str(default / name) for name in _DEFAULT_KEYS if (default / name).is_file()]
    for path in named[: len(hop.keys)]:
        key = _read_key(path, unreadable)
        if key is not None and new(key):
            yield path, key
    try:
        agent_keys = Agent().get_keys() if not hop.only_these_keys or unreadable else ()
    except (SSHException, OSError):
        agent_keys = ()  # no agent, or one that does not answer
    for key in agent_keys:
        if new(key):
            yield f"the SSH agent's {key.get_name()}", key
    for path in named[len(hop.keys) :]:
        key = _read_key(path, unreadable)
        if key is not None and new(key):
            yield path, key


def _read_key(path: str, unreadable: list[str]) -> PKey | None:
    from paramiko import PKey, SSHException
    from paramiko.pkey import UnknownKeyType

    try:
        return PKey.from_path(path)
    except OSError as error:
        unreadable.append(f"{path}: {(error.strerror or str(error)).lower()}")
    except (SSHException, UnknownKeyType, TypeError):
        unreadable.append(f"{path}: it is locked with a password, or of an unknown kind")
    except ValueError:
        unreadable.append(f"{path}: it is not a private key")
    return None


def _refused(hop: Hop, offered: list[str], unreadable: list[str], why: str | None) -> DeviceError:
    if why is None:
        why = "there was no key to offer" if not offered else "none of the keys is let in"
    hint = (
        f"check the user and the key; ssh-copy-id -p {hop.port} {hop.user}@{hop.host} lets one in"
    )
    if unreadable:
        hint = f"{hint}; ssh-add unlocks a key that has a password"
    return DeviceError(
        f"{hop.host} does not let {hop.user} in: {why}",
        hint=hint,
        details=(
            *(f"offered {where}" for where in offered),
            *(f"not offered {where}" for where in unreadable),
        ),
    )
