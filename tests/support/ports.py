"""Ports of this machine for servers that tests start, and start again."""

from __future__ import annotations

import random
import socket

# Not of those that the system hands out to whoever asks for any: somebody might have it before it
# is used, or before it is used again.
_PORTS = range(20_000, 32_000)
_claims: list[socket.socket] = []

CLOSED_PORT = 1
"""A port without a listener."""


def free_port() -> int:
    """Return a port without a listener, which no other test gets while this process runs."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0edgekit-test-port-{port}")  # a name alone, gone with its process
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return port
    raise AssertionError("every port is taken")
