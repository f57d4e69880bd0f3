"""A network that vanishes: nothing comes through any more, and no end of a connection either."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_LOOPBACK = "127.0.0.1"
_BLOCK = 1 << 16


@dataclass
class Network:
    port: int
    """Where the server behind it is reached."""
    carried: int = 0
    """Bytes that went to the server."""
    most: int | None = None
    """So many go to the server before the network vanishes."""
    when_gone: Callable[[], None] = lambda: None
    """The call at the moment of vanishing, which shortens limits: one that is short from the
    beginning takes a busy machine for a vanished network."""
    _gone: threading.Event = field(default_factory=threading.Event)

    def vanish(self) -> None:
        self._gone.set()
        self.when_gone()

    def come_back(self) -> None:
        """Let new connections through; earlier ones stay as they are."""
        self._gone = threading.Event()
        self.most = None

    def carry(self, source: socket.socket, sink: socket.socket, upward: bool) -> None:
        gone = self._gone
        with suppress(OSError):
            while data := source.recv(_BLOCK):
                if gone.is_set():
                    return
                sink.sendall(data)
                if upward:
                    self.carried += len(data)
                    if self.most is not None and self.carried >= self.most:
                        gone.set()
                        self.when_gone()
            if not gone.is_set():
                sink.shutdown(socket.SHUT_WR)


@contextmanager
def network_before(port: int) -> Iterator[Network]:
    """A network before what listens on a port. Its connections to there close with the block."""
    ends: list[socket.socket] = []
    with socket.create_server((_LOOPBACK, 0)) as listener:
        network = Network(listener.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                server = socket.create_connection((_LOOPBACK, port))
                ends.extend((client, server))
                for upward, pair in ((True, (client, server)), (False, (server, client))):
                    carrier = threading.Thread(
                        target=network.carry, args=(*pair, upward), daemon=True
                    )
                    carrier.start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield network
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for end in ends:
                end.close()
