"""How fast files reach a device: edgekit beside scp and rsync, in turns, in one run.

    python benchmarks/transfer.py                    to an SSH server of its own on loopback
    python benchmarks/transfer.py --device kitchen   to a known device

Every file is new to the other side each time. edgekit's time holds the look at the device before a
transfer and the hashing on the way; scp does neither. Connecting is part of every time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.ssh_server import ssh_server

from edgekit.base.files import sha256_file
from edgekit.base.wording import size
from edgekit.devices.linux.connection import connect
from edgekit.devices.linux.hostkeys import KnownHosts
from edgekit.devices.linux.probe import ask_device
from edgekit.devices.linux.transfer import Item, Store
from edgekit.devices.registry import find_device, known_devices
from edgekit.project.devices import SshEntry
from edgekit.project.file import find_project

SIZES = (100 << 10, 1 << 20, 10 << 20, 100 << 20)


@dataclass(frozen=True)
class Place:
    entry: SshEntry
    known_hosts: KnownHosts

    def ssh_options(self) -> list[str]:
        words = ["-o", f"UserKnownHostsFile={self.known_hosts.own}", "-o", "BatchMode=yes"]
        if self.entry.key:
            words += ["-o", "IdentitiesOnly=yes", "-i", self.entry.key]
        return words

    def destination(self, name: str) -> str:
        user = f"{self.entry.user}@" if self.entry.user else ""
        return f"{user}{self.entry.host}:{name}"


def edgekit(place: Place, file: Path, sha256: str) -> None:
    with connect(place.entry, known_hosts=place.known_hosts) as connection:
        store = Store(connection, ask_device(connection, place.entry.directory))
        item = Item(file, "file", sha256, file.stat().st_size)
        store.push([item], "models/benchmark")


def scp(place: Place, file: Path, sha256: str) -> None:
    port = ["-P", str(place.entry.port or 22)]
    target = place.destination(f"/tmp/edgekit-benchmark-{os.getpid()}")
    subprocess.run(["scp", "-q", *port, *place.ssh_options(), str(file), target], check=True)


def rsync(place: Place, file: Path, sha256: str) -> None:
    shell = " ".join(["ssh", "-p", str(place.entry.port or 22), *place.ssh_options()])
    target = place.destination(f"/tmp/edgekit-benchmark-{os.getpid()}-rsync")
    subprocess.run(
        ["rsync", "--whole-file", "--ignore-times", "-e", shell, str(file), target], check=True
    )


def clean(place: Place) -> None:
    with connect(place.entry, known_hosts=place.known_hosts) as connection:
        root = ask_device(connection, place.entry.directory).root
        script = 'rm -rf "$1/models/benchmark" "/tmp/edgekit-benchmark-$2"*; '
        script += 'for f in "$1"/objects/*; do '
        script += '[ "$(ls -ld "$f" | { read -r m n r; echo "$n"; })" = 1 ] && rm -f "$f"; done'
        connection.run(("sh", "-c", script, "edgekit", root, str(os.getpid())))


@contextlib.contextmanager
def place_of(name: str | None) -> Iterator[Place]:
    if name is not None:
        entry = find_device(name, known_devices(find_project(Path.cwd()))).entry
        if not isinstance(entry, SshEntry):
            raise SystemExit(f"{name} is no board over SSH: name one that is")
        yield Place(entry, KnownHosts())
        return
    with tempfile.TemporaryDirectory() as folder, ssh_server(Path(folder)) as server:
        server.connect().close()
        yield Place(server.entry(), server.known_hosts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="a known device; without one, a server on loopback")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    ways: dict[str, Callable[[Place, Path, str], None]] = {"edgekit": edgekit}
    ways |= {name: way for name, way in (("scp", scp), ("rsync", rsync)) if shutil.which(name)}
    print(f"{'size':>10}  {'way':8}  {'median s':>8}  {'spread s':>13}  {'MiB/s':>7}")
    with place_of(options.device) as place, tempfile.TemporaryDirectory() as folder:
        for count in SIZES:
            times: dict[str, list[float]] = {name: [] for name in ways}
            for round_number in range(options.rounds + 1):
                for name, way in ways.items():
                    file = Path(folder) / "file"
                    file.write_bytes(os.urandom(count))
                    digest = sha256_file(file)
                    started = time.perf_counter()
                    way(place, file, digest)
                    if round_number:  # the first one warms up
                        times[name].append(time.perf_counter() - started)
                clean(place)
            for name, seconds in times.items():
                median = statistics.median(seconds)
                spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
                rate = count / median / (1 << 20)
                print(f"{size(count):>10}  {name:8}  {median:8.3f}  {spread:>13}  {rate:7.1f}")


if __name__ == "__main__":
    main()
