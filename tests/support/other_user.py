"""A second user of this machine, who tries the ports that a running edgekit has opened."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

UID = 54321
"""No account needs to exist."""

_LISTENING = "0A"
# What TVM's RPC server, its tracker and a web server would answer to, and silence.
_GREETINGS = (
    b"q\xf2\x0f\x00\x08\x00\x00\x00client:k",
    b"\x71\xf2\x02\x00",
    b"GET / HTTP/1.0\r\n\r\n",
)

_TRY = """\
import encodings.idna, json, os, socket, sys

uid, places, greetings, seconds = json.loads(sys.argv[1])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
for place in places:
    for greeting in [None, *greetings]:
        try:
            stream = socket.create_connection(tuple(place), timeout=seconds)
        except ConnectionRefusedError:
            print(json.dumps([place[1], "gone"]), flush=True)
            continue
        try:
            with stream:
                if greeting is not None:
                    stream.sendall(bytes.fromhex(greeting))
                said = ""
                while block := stream.recv(4096):
                    said += block.hex()
        except ConnectionError:
            said = ""
        except TimeoutError:
            said = "nothing, and it stays open"
        print(json.dumps([place[1], said]), flush=True)
"""

_HOLD = """\
import os, socket, sys

uid, port, count = map(int, sys.argv[1:])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
streams = [socket.socket() for _ in range(count)]
for stream in streams:
    stream.connect(("127.0.0.1", port))
print("held", flush=True)
sys.stdin.read()
"""
GONE = "gone"
"""An answer of a port that was closed meanwhile."""


@dataclass(frozen=True)
class Listening:
    pid: int
    host: str
    port: int


def listening(pids: Iterable[int]) -> list[Listening]:
    """Every TCP port on which these processes listen, from the kernel's tables."""
    owners: dict[str, int] = {}
    for pid in pids:
        try:
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue  # it has ended
        for descriptor in descriptors:
            try:
                name = str(descriptor.readlink())
            except OSError:
                continue
            if name.startswith("socket:["):
                owners[name[8:-1]] = pid
    found = []
    for table, loopback in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in owners:
                port = int(fields[1].rpartition(":")[2], 16)
                found.append(Listening(owners[fields[9]], loopback, port))
    return found


def answers_to_another(
    ports: Iterable[tuple[str, int]], uid: int = UID, seconds: float = 60.0
) -> dict[int, set[str]]:
    """What the second user hears of each port, in hexadecimal: with `{""}`, it was closed each
    time without a byte."""
    places = sorted(set(ports))
    greetings = [greeting.hex() for greeting in _GREETINGS]
    done = subprocess.run(
        [sys.executable, "-I", "-c", _TRY, json.dumps([uid, places, greetings, seconds])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    answers: dict[int, set[str]] = {}
    for line in done.stdout.splitlines():
        port, said = json.loads(line)
        answers.setdefault(port, set()).add(said)
    assert set(answers) == {port for _, port in places}
    return answers


@contextmanager
def held_by_another(port: int, count: int) -> Iterator[None]:
    """Connections of the second user, who neither says anything nor hangs up."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _HOLD, str(UID), str(port), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def assert_all_refused(found: Iterable[Listening]) -> None:
    answers = answers_to_another((one.host, one.port) for one in found)

    assert {port: said for port, said in answers.items() if said != {""}} == {}
