"""Tasks for workers of a cluster, and a cluster to give them to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file
from edgekit.cluster.cluster import Cluster
from edgekit.cluster.fitness import Needs, needs_of
from edgekit.cluster.place import Local
from edgekit.cluster.starting import Started, started
from edgekit.cluster.task import Task

HERE = needs_of((), ())


@contextmanager
def local_cluster(
    workers: int, needs: Needs = HERE, events: Events = SILENT
) -> Iterator[tuple[Cluster, Started]]:
    """Run workers of this host, and wait for all of them."""
    with started(Local(workers), events) as processes:
        cluster = Cluster(processes.address, processes.credentials, needs, events)
        try:
            wait_for(lambda: cluster.width == workers)
            yield cluster, processes
        finally:
            cluster.close()


def wait_for(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.05)


@dataclass(frozen=True)
class Copy(Task[tuple[Path, int]]):
    """Reads files of the client, and leaves files."""

    source: Path
    out: Path

    def run(self) -> tuple[Path, int]:
        data = self.source.read_bytes()
        (self.out / "same.bin").write_bytes(data)
        (self.out / "deep").mkdir()
        (self.out / "deep" / "twice.bin").write_bytes(data * 2)
        return self.out / "deep" / "twice.bin", os.getpid()


@dataclass(frozen=True)
class Fail(Task[None]):
    error: Exception

    def run(self) -> None:
        raise self.error


@dataclass(frozen=True)
class Note(Task[int]):
    """Adds a line to a file of this host, waits, and may kill its worker the first time."""

    log: str
    number: int
    seconds: float = 0.0
    kills: int = 0
    """How many workers die of it."""

    def run(self) -> int:
        with Path(self.log).open("a", encoding="utf-8") as stream:
            stream.write(f"{self.number} {os.getpid()}\n")
        begun = Path(self.log).read_text(encoding="utf-8").splitlines()
        if sum(line.startswith(f"{self.number} ") for line in begun) <= self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return self.number


@dataclass(frozen=True)
class Job(Task[str]):
    """Tells of which SLURM job its worker is."""

    def run(self) -> str:
        return os.environ["SLURM_JOB_ID"]


@dataclass(frozen=True)
class FillDisk(Task[str]):
    """Lets the first worker that gets it believe that its disk is full."""

    flag: str

    def run(self) -> str:
        from edgekit.cluster import task

        try:
            Path(self.flag).touch(exist_ok=False)
        except FileExistsError:
            return sha256_file(Path(self.flag))
        task._LEAST_FREE = 1 << 60
        return "lost"
