"""Free TCP ports on loopback."""

from __future__ import annotations

import socket

from edgekit.base.errors import DeviceError
from edgekit.twin.access import HOST


def choose_port() -> int:
    """One that is free now. Another program may be quicker: who uses it must be able to fail."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
    except OSError as error:
        raise DeviceError(
            f"there is no free port on {HOST}: {error.strerror}",
            hint="close some network programs and try again",
        ) from error
    assert isinstance(port, int)
    return port


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As QEMU does: a connection of the twin's last run that fades away is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
