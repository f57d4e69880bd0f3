"""A farm's device that costs next to nothing: edgekit's own agent on this machine, without SSH.

The farm starts it as it starts the workers of its devices. It uses nothing but Python itself, so
that hundreds of them fit on one machine:

    python -I -S simulated_device.py AGENT WORKSPACE NAME PROJECT KEY TRACKER_PORT PORT
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time

SECONDS_BETWEEN_SIGNS = 5.0
BLOCK = 1 << 16


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(os.environ.get("EDGEKIT_PARENT", os.getppid())):
        return  # the keeper ended before it could be watched
    agent, workspace, _, _, key, tracker_port, port = sys.argv[1:]
    words = [agent, "serve", "--key", key, "--tracker", f"127.0.0.1:{tracker_port}"]
    words += ["--port", port, "--workspace", workspace, "--end-with-parent"]
    reading, writing = os.pipe()
    environment = {**os.environ, "EDGEKIT_PARENT": str(os.getpid())}
    pid = os.posix_spawn(
        agent, words, environment, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)]
    )
    os.close(writing)
    try:
        relay(reading)
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def relay(agent: int) -> None:
    """Relay until the agent or the keeper ends."""
    rest, port, last = b"", 0, time.monotonic()
    while True:
        ready, _, _ = select.select([agent, 0], [], [], SECONDS_BETWEEN_SIGNS)
        if time.monotonic() - last >= SECONDS_BETWEEN_SIGNS:
            last = time.monotonic()
            say({"state": "alive"})
        if 0 in ready and not os.read(0, BLOCK):
            return
        if agent not in ready:
            continue
        block = os.read(agent, BLOCK)
        if not block:
            say({"state": "lost", "reason": "the agent ended"})
            return
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            message = json.loads(line)
            port = message.get("port", port)
            if message.get("state") == "registered":
                message = {"state": "up", "port": port}
            elif message.get("state") == "turned away":
                message = {"state": "refused", "detail": message.get("reason", "")}
            say(message)


def say(message: dict[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
