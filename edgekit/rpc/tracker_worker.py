"""TVM's tracker in a process of its own. It ends with its parent, however that ends.

    edgekit.rpc.tracker_worker DESCRIPTOR

serves on a socket that the parent listens on, and tells the parent once it does, then in a line
each which connections of other users it refused.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import threading
from contextlib import suppress

from edgekit.base.own_listener import OwnListener

READY = b"ready\n"


def main() -> None:
    # Ctrl-C reaches the whole process group; it is the parent who decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    from tvm.rpc.tracker import TrackerServerHandler

    asyncio.set_event_loop(asyncio.new_event_loop())
    told = os.dup(1)

    def refused(reason: str) -> None:
        with suppress(BlockingIOError):  # the tracker does not wait for who listens
            os.write(told, reason.encode() + b"\n")

    listener = OwnListener(socket.socket(fileno=int(sys.argv[1])), refused)
    # Nobody is told the word that would stop it.
    handler = TrackerServerHandler(listener, secrets.token_hex(16))
    os.write(told, READY)
    os.set_blocking(told, False)
    # TVM's log is not shown.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    handler.run()


def _end_with_parent() -> None:
    """Its end of our input is closed by the kernel even where it is killed."""
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
