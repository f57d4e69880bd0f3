"""Devices of a host whose farm has joined this one. That host's edgekit is logged in to the device,
and passes on what this host asks of it.

`edgekit farm gate --device NAME` on the host serves SSH on its input and output; it opens each
channel again on its own connection to the device.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from edgekit.base.decode import Convert, Count, decode_json
from edgekit.base.errors import DeviceError
from edgekit.base.wording import printable
from edgekit.devices.linux.forwarding import ChannelOpener
from edgekit.devices.linux.handshake import SECONDS_TO_LOG_IN, WatchedSocket
from edgekit.devices.linux.hostkeys import fingerprint_of
from edgekit.devices.linux.ssh_config import Hop

if TYPE_CHECKING:
    from paramiko import Channel, Transport

    from edgekit.project.devices import JoinedEntry

USER = "edgekit"
"""The user name of the SSH that the gate speaks; the login to the host has decided who it is."""
MARK = "edgekit gate "
"""The start of the gate's first line, a JSON object; SSH follows."""

_SECONDS_TO_START = 60.0
_LONGEST_LINE = 1 << 16
_MOST_LINES = 200
_SCRIPT = """\
PATH=$PATH:$HOME/.local/bin:/usr/local/bin; export PATH
exec "$1" farm gate --device "$2\""""


_Words = Annotated[str, Convert("text", lambda said: printable(str(said or "")[:300]))]


@dataclass(frozen=True)
class GateAnswer:
    """What the gate of a joined host says; none of it is trusted."""

    key: str = ""
    """The fingerprint of the host key that its SSH will show."""
    blank: bool = False
    """Whether the line's microcontroller has no firmware."""
    written: Count | None = None
    """The bytes of firmware that were written."""
    error: _Words | None = None
    hint: _Words = ""


def log_in_through(entry: JoinedEntry, host: ChannelOpener) -> tuple[Hop, Transport, WatchedSocket]:
    """Return a transport to the device, through the connection to its host."""
    from paramiko import SSHException, Transport

    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    words = ("sh", "-c", _SCRIPT, "edgekit", entry.program or "edgekit", entry.device)
    channel = host.open_channel("session")
    channel.settimeout(_SECONDS_TO_START)
    try:
        channel.exec_command(" ".join(shlex.quote(word) for word in words))
        key = _key_of(entry, channel)
        watched = WatchedSocket(channel)
        transport = Transport(watched)
        transport.daemon = True
        transport.start_client(timeout=SECONDS_TO_LOG_IN)
        if fingerprint_of(transport.get_remote_server_key()) != key:
            raise _unusable(entry, "its host key is not the announced one")
        transport.auth_none(USER)
    except (SSHException, EOFError, OSError) as error:
        raise _unusable(entry, str(error) or "it hung up") from error
    hop = Hop(entry.address, 0, USER, (), False, "")
    return hop, transport, watched


def _key_of(entry: JoinedEntry, channel: Channel) -> str:
    """Read the gate's first line, byte by byte, as SSH follows; return its host key."""
    deadline = time.monotonic() + _SECONDS_TO_START
    for _ in range(_MOST_LINES):
        line = b""
        while not line.endswith(b"\n"):
            byte = channel.recv(1)
            if not byte or len(line) > _LONGEST_LINE or time.monotonic() > deadline:
                last = channel.recv_stderr(_LONGEST_LINE) if channel.recv_stderr_ready() else b""
                words = last.decode(errors="replace").strip().splitlines()
                raise _unusable(entry, words[-1][:300] if words else "edgekit there hung up")
            line += byte
        text = line.decode(errors="replace")
        if text.startswith(MARK):
            try:
                said = decode_json(GateAnswer, text.removeprefix(MARK), ignore_unknown=True)
            except ValueError as error:
                raise _unusable(entry, "its first line is invalid") from error
            if said.error is not None:
                raise DeviceError(said.error, hint=said.hint or "see that host")
            return said.key
    raise _unusable(entry, "the host's shell prints too much before edgekit starts")


def _unusable(entry: JoinedEntry, why: str) -> DeviceError:
    return DeviceError(
        f"{entry.name} cannot be used through {entry.host.address}: {printable(why)}",
        hint="install the same edgekit on both hosts; `edgekit farm status` shows the device",
    )


def announcement(document: dict[str, object]) -> bytes:
    return (MARK + json.dumps(document)).encode() + b"\n"
