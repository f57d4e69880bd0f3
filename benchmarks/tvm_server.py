"""TVM's own RPC server in Python, which serves its own user and root only.

    python -m benchmarks.tvm_server KEY TRACKER_HOST TRACKER_PORT

TVM's command listens for every user of the machine.
"""

from __future__ import annotations

import logging
import sys

from edgekit.base.own_listener import LOOPBACK, listen_on_loopback
from edgekit.base.tvm_compat import load_tvm


def main() -> None:
    key, host, port = sys.argv[1:]
    load_tvm()
    from tvm.rpc import server

    logging.getLogger("RPCServer").setLevel(logging.ERROR)
    listener = listen_on_loopback(0)
    own_port = listener.getsockname()[1]
    server._listen_loop(listener, own_port, key, (host, int(port)), None, LOOPBACK)


if __name__ == "__main__":
    main()
