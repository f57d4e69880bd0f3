"""The process that runs TVM's tracker. It ends with its parent, however that ends.

    edgekit.rpc.tracker_worker DESCRIPTOR

It serves on a socket that the parent listens on. It writes a line when it is ready, and one for
each refused connection of another user.
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
    # Ctrl-C reaches the whole process group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    from tvm.rpc.tracker import TrackerServerHandler

    asyncio.set_event_loop(asyncio.new_event_loop())
    parent = os.dup(1)

    def refused(reason: str) -> None:
        with suppress(BlockingIOError):  # the tracker does not wait for its parent
            os.write(parent, reason.encode() + b"\n")

    listener = OwnListener(socket.socket(fileno=int(sys.argv[1])), refused)
    # The key that would stop it is secret.
    handler = TrackerServerHandler(listener, secrets.token_hex(16))
    os.write(parent, READY)
    os.set_blocking(parent, False)
    # Hide TVM's log.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    handler.run()


def _end_with_parent() -> None:
    """End when the kernel closes the parent's end of the input, even if the parent is killed."""
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
