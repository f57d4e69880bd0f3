"""What it takes to ask the kernel which user a connection comes from, by how many sockets are open.

python -m benchmarks.peer_owner
"""

from __future__ import annotations

import resource
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial

from edgekit.base.own_listener import Door
from edgekit.base.peer_owner import end_of, from_netlink, from_tables

COUNTS = (10, 1000, 10_000)
REPEATS = 20
_FILES_BESIDE = 100


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = hard - _FILES_BESIDE
    print("| sockets | sock_diag, ms | /proc/net/tcp, ms | accepting altogether, ms |")
    print("|---|---|---|---|")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        opened: list[socket.socket] = []
        for count in COUNTS:
            while len(opened) < min(count, most):
                opened.append(socket.create_connection(listener.getsockname()))
                opened.append(listener.accept()[0])
            last = opened[-1]
            ends = end_of(last.getpeername()), end_of(last.getsockname())
            times = (
                _milliseconds(partial(from_netlink, *ends)),
                _milliseconds(partial(from_tables, *ends)),
                _milliseconds(partial(Door().admits, last)),
            )
            shown = " | ".join(f"{taken:.3f}" for taken in times)
            print(f"| {len(opened)} | {shown} |")


def _milliseconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)


if __name__ == "__main__":
    main()
