"""Whether OpenSSH with ControlMaster would be faster than edgekit's connection on paramiko.

    python benchmarks/ssh_transport.py               to an SSH server of its own on loopback
    python benchmarks/ssh_transport.py --rounds 11

Both ways do the same work in turns, with the same server, key and ciphers that they agree on with
it. A ratio is OpenSSH's time through paramiko's of the same round: above 1, paramiko is faster.
"""

from __future__ import annotations

import argparse
import os
import socket
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.ssh_server import SshServer, ssh_server

from edgekit.devices.linux.connection import Connection

COMMANDS = 100
PUSHED = 50 << 20
_PIECE = 1 << 20
ROUND_TRIPS = 300
_MESSAGE = b"x" * 64


class Way(Protocol):
    def run(self) -> None:
        """Run a command that does nothing, to its end."""

    def push(self, data: Path) -> None:
        """Send a file to a command that swallows it."""

    def forwarded(self, port: int) -> int:
        """Forward a port of this host to a port of the server, and return it."""


@dataclass
class Paramiko:
    connection: Connection

    def run(self) -> None:
        with self.connection.command(("true",)) as command:
            assert command.finish(30).status == 0

    def push(self, data: Path) -> None:
        with self.connection.command(("sh", "-c", "cat >/dev/null")) as command:
            with data.open("rb") as file:
                while piece := file.read(_PIECE):
                    command.send(piece, 60)
            command.end_input()
            assert command.finish(60).status == 0

    def forwarded(self, port: int) -> int:
        return self.connection.forward(port)


@dataclass
class OpenSsh:
    words: list[str]
    """The command line up to the remote command, for the running master."""

    def run(self) -> None:
        subprocess.run([*self.words, "true"], check=True, stdin=subprocess.DEVNULL)

    def push(self, data: Path) -> None:
        with data.open("rb") as file:
            subprocess.run([*self.words, "cat >/dev/null"], check=True, stdin=file)

    def forwarded(self, port: int) -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            ours = free.getsockname()[1]
        lead = f"127.0.0.1:{ours}:127.0.0.1:{port}"
        subprocess.run([*self.words[:-1], "-O", "forward", "-L", lead, self.words[-1]], check=True)
        return int(ours)


@contextmanager
def paramiko(server: SshServer, folder: Path) -> Iterator[Paramiko]:
    with server.connect() as connection:
        yield Paramiko(connection)


@contextmanager
def open_ssh(server: SshServer, folder: Path) -> Iterator[OpenSsh]:
    options = {
        "ControlPath": str(folder / "master"),
        "UserKnownHostsFile": str(server.known_hosts.own),
        "IdentityFile": server.key,
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "User": server.user,
        "Port": str(server.port),
    }
    words = ["ssh", "-F", "none", "-q"]
    words += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    subprocess.run([*words, "-M", "-N", "-f", "127.0.0.1"], check=True, stdin=subprocess.DEVNULL)
    try:
        yield OpenSsh([*words, "127.0.0.1"])
    finally:
        subprocess.run([*words, "-O", "exit", "127.0.0.1"], check=True, stderr=subprocess.DEVNULL)


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            while data := self.request.recv(4096):
                self.request.sendall(data)


@contextmanager
def echo_server() -> Iterator[int]:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with closing(server.socket):
        yield server.server_address[1]
        server.shutdown()


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def round_trips(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            stream.sendall(_MESSAGE)
            left = len(_MESSAGE)
            while left:
                left -= len(stream.recv(left))


def measure(
    way: Callable[[SshServer, Path], object], server: SshServer, folder: Path, data: Path, port: int
) -> dict[str, float]:
    started = time.perf_counter()
    with way(server, folder) as opened:  # type: ignore[attr-defined]
        opened.run()
        connected = time.perf_counter() - started
        commands = timed(lambda: [opened.run() for _ in range(COMMANDS)])
        push = timed(lambda: opened.push(data))
        forwarded = opened.forwarded(port)
        echoes = timed(lambda: round_trips(forwarded))
    return {
        "connect, first command": connected,
        f"one command of {COMMANDS}": commands / COMMANDS,
        f"push {PUSHED >> 20} MiB": push,
        f"forwarded round trip of {ROUND_TRIPS}": echoes / ROUND_TRIPS,
    }


def import_seconds() -> float:
    """Return what importing paramiko adds to the start of Python."""

    def start(code: str) -> float:
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    return start("import paramiko") - start("pass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    found: list[dict[str, tuple[float, float]]] = []
    with tempfile.TemporaryDirectory(prefix="ek-") as place:
        folder = Path(place)
        data = folder / "data"
        data.write_bytes(os.urandom(PUSHED))
        with ssh_server(folder / "server") as server, echo_server() as port:
            for number in range(rounds + 1):
                ours = measure(paramiko, server, folder, data, port)
                theirs = measure(open_ssh, server, folder, data, port)
                if number:  # the first one warms up
                    found.append({key: (ours[key], theirs[key]) for key in ours})
    print(f"{rounds} rounds, milliseconds, ", end="", flush=True)
    subprocess.run(["ssh", "-V"], stderr=sys.stdout, check=True)
    print(f"{'':32} {'paramiko':>9} {'OpenSSH':>9}  OpenSSH / paramiko (spread)")
    for key in found[0]:
        pairs = [one[key] for one in found]
        ours, theirs = (1000 * statistics.median(side) for side in zip(*pairs, strict=True))
        ratios = sorted(their / our for our, their in pairs)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{key:32} {ours:9.2f} {theirs:9.2f}  {spread}")
    imports = statistics.median(import_seconds() for _ in range(rounds))
    print(f"importing paramiko: {1000 * imports:.0f} ms, once a process that uses SSH")


if __name__ == "__main__":
    main()
