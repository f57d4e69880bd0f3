"""A terminal before what listens on a socket: the nearest to a board on USB."""

from __future__ import annotations

import os
import pty
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.unix_line import line_of


@contextmanager
def pty_line(board_at: str) -> Iterator[str]:
    """The terminal's name."""
    ours, theirs = pty.openpty()
    ended = threading.Event()
    with line_of(board_at) as board:

        def carry() -> None:
            while not ended.is_set():
                readable, _, _ = select.select([ours, board], [], [], 0.05)
                if ours in readable:
                    board.sendall(os.read(ours, 4096))
                if board in readable:
                    os.write(ours, board.recv(512))

        thread = threading.Thread(target=carry)
        thread.start()
        try:
            yield os.ttyname(theirs)
        finally:
            ended.set()
            thread.join()
            os.close(ours)
            os.close(theirs)
