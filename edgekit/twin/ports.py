"""Free TCP ports on loopback."""

from __future__ import annotations

import socket

from edgekit.base.errors import DeviceError
from edgekit.twin.access import HOST


def choose_port() -> int:
    """Return a port that is free now. Another program may take it before its use."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
    except OSError as error:
        raise DeviceError(
            f"no port on {HOST} is free: {error.strerror}",
            hint="close some network programs and try again",
        ) from error
    assert isinstance(port, int)
    return port


def is_free(port: int) -> bool:
    """Tell whether a port is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As QEMU does: a closing connection of the twin's last run does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
