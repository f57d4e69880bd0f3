"""The serial line of an emulated board, as a plain socket."""

from __future__ import annotations

import socket
from pathlib import Path

from edgekit.base.unix_sockets import reachable


def line_of(address: str) -> socket.socket:
    """Connect to `unix://PATH`."""
    line = socket.socket(socket.AF_UNIX)
    with reachable(Path(address.removeprefix("unix://"))) as name:
        line.connect(name)
    return line
