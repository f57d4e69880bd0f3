"""A serial port of another host's, as ser2net has it: RFC 2217 before what listens on a socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import serial
import serial.rfc2217

from edgekit.devices.serial.port import DEFAULT_BAUD, opened_port

HOST = "127.0.0.1"


class _Answers:
    """What the port manager writes its answers to."""

    def __init__(self, client: socket.socket) -> None:
        self.write = client.sendall


@contextmanager
def rfc2217_server(address: str) -> Iterator[str]:
    """Where to connect, as pyserial has it; for one client."""
    with socket.create_server((HOST, 0)) as server:
        ended = threading.Event()
        server.settimeout(240)

        def serve() -> None:
            with suppress(OSError, serial.SerialException):
                client, _ = server.accept()
                with client, opened_port(address, DEFAULT_BAUD) as line:
                    line.timeout = 0.01
                    client.settimeout(0.01)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    manager = serial.rfc2217.PortManager(line, _Answers(client))
                    while not ended.is_set():
                        with suppress(TimeoutError):
                            data = client.recv(4096)
                            if not data:
                                return
                            line.write(b"".join(manager.filter(data)))
                        back = line.read(1)
                        while back:
                            client.sendall(b"".join(manager.escape(back)))
                            back = line.read(1) if line.in_waiting else b""

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"rfc2217://{HOST}:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()
