"""A serial line that changes, loses, repeats and invents bytes, before it reaches who listens."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from support.unix_line import line_of

HOST = "127.0.0.1"


@dataclass
class Harm:
    """Chances, of each byte or of each piece that comes at once: into how many pieces bytes fall is
    the machine's doing."""

    changed: float = 0.0
    lost: float = 0.0
    repeated: float = 0.0
    invented: float = 0.0
    calm: int = 0
    """Bytes after each harm that come as they are: nobody gets a word across a line that harms
    every try."""
    done: int = 0
    """How often it was done so far."""
    random: random.Random = field(default_factory=lambda: random.Random(7))
    _spared: int = 0

    def to(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._happens(self.changed):
                out.append(byte ^ self.random.randrange(1, 256))
            elif not self._happens(self.lost):
                out.append(byte)
            self._spared = max(self._spared - 1, 0)
        if self._happens(self.repeated):
            out = out * 2
        if self._happens(self.invented):
            out += self.random.randbytes(self.random.randrange(1, 40))
        return bytes(out)

    def _happens(self, chance: float) -> bool:
        if self._spared or self.random.random() >= chance:
            return False
        self.done += 1
        self._spared = self.calm
        return True


@contextmanager
def noisy_line(board_at: str, harm: Harm) -> Iterator[str]:
    """Return where to connect instead of `unix://...`, as pyserial has it."""
    with socket.create_server((HOST, 0)) as server:
        server.settimeout(0.2)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    client, _ = server.accept()
                    with client, line_of(board_at) as board:
                        _carry(client, board, harm, ended)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"socket://{HOST}:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def _carry(client: socket.socket, board: socket.socket, harm: Harm, ended: threading.Event) -> None:
    for side in (client, board):
        side.settimeout(0.02)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while not ended.is_set():
        for source, target in ((client, board), (board, client)):
            try:
                data = source.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            try:
                target.sendall(harm.to(data))
            except OSError:
                return
