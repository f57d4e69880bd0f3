"""The store and its disk fail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.stores import a_record, postgres_in

from edgekit.store.database import close_store, open_store
from edgekit.store.tuning import all_records
from faults.work import text_of
from faults.world import Broken, World, eventually, world


class CannotBeTried(Exception):
    """This machine lacks what the fault needs."""


def postgres_is_killed(folder: Path) -> None:
    with (
        postgres_in(folder / "postgres") as server,
        world(folder / "world", store=server.url) as lab,
    ):
        work = lab.start_work()
        work.has(3)
        server.kill()
        time.sleep(1)
        server.start()
        work.finishes()
        lab.all_free()


def postgres_is_frozen(folder: Path) -> None:
    with (
        postgres_in(folder / "postgres") as server,
        world(folder / "world", store=server.url) as lab,
    ):
        work = lab.start_work()
        work.has(3)
        pid = (server.folder / "data" / "postmaster.pid").read_text().split()[0]
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", pid], capture_output=True, text=True)
        all_of_it = [int(pid), *map(int, listed.stdout.split())]
        for one in all_of_it:
            os.kill(one, signal.SIGSTOP)
        time.sleep(3)
        for one in all_of_it:
            try:
                os.kill(one, signal.SIGCONT)
            except ProcessLookupError:
                continue
        work.finishes()
        lab.all_free()


def the_stores_disk_is_full(folder: Path) -> None:
    """Records wait in files until there is room."""
    with _small_world(folder, "keep", "4m") as (lab, disk):
        work = lab.start_work()
        work.has(2)
        fill(disk)
        work.has(5)
        (disk / "filler").unlink(missing_ok=True)
        work.finishes()
        lab.all_free()


def the_outbox_is_full(folder: Path) -> None:
    """Not even a file can be written: what the work calls safe is in a file or in the store."""
    with _small_world(folder, "data/edgekit/outbox", "256k") as (lab, disk):
        work = lab.start_work()
        work.has(2)
        for _ in range(30):
            fill(disk)  # what is delivered frees room, and the work goes on by it
            time.sleep(0.1)
            if lost := _nowhere(lab, disk, list(work.safe)):
                raise Broken(f"it took for safe what is nowhere: {lost}")
        (disk / "filler").unlink(missing_ok=True)
        work.finishes()
        lab.all_free()


def _nowhere(lab: World, outbox: Path, safe: list[int]) -> list[int]:
    """Return the records that are neither in a file nor in the store; a file that is delivered is
    removed after it is in the store."""
    files = "".join(text_of(path) for path in outbox.rglob("*.json"))
    store = open_store(lab.store)
    stored = {record.id for record in all_records(store)}
    close_store(store)
    ids = {number: a_record(number).id for number in safe}
    return [number for number, id in ids.items() if id not in files and id not in stored]


def the_farms_disk_is_full(folder: Path) -> None:
    """What the farm itself keeps is small, and there already."""
    with _small_world(folder, "data", "4m") as (lab, disk):
        work = lab.start_work()
        work.has(2)
        fill(disk)
        lab.ask({"do": "drain", "device": "d0"})
        lab.ask({"do": "resume", "device": "d0"})
        for tracker in lab.processes("tracker_worker"):
            os.kill(tracker, signal.SIGKILL)
        lab.all_free()
        (disk / "filler").unlink(missing_ok=True)
        work.finishes()
        lab.all_free()


@contextmanager
def _small_world(folder: Path, place: str, size: str) -> Iterator[tuple[World, Path]]:
    """One of whose folders has a disk of its own, which is there until it was checked."""
    with ExitStack() as stack:

        def prepare(lab: World) -> None:
            stack.enter_context(small_disk(lab.folder / place, size))

        with world(folder, prepare=prepare) as lab:
            yield lab, lab.folder / place


def what_waits_is_damaged(folder: Path) -> None:
    """Put aside, and everything else is delivered."""
    with world(folder) as lab:
        work = lab.start_work()
        work.has(2)
        (outbox,) = (lab.data / "outbox").glob("for-*")
        for number in range(3):
            (outbox / f"{number}.json").write_bytes((b"", b"\xff", b'{"format": 99}')[number])
        work.finishes()
        lab.kept()
        eventually("it is put aside", lambda: not list(outbox.glob("*.json")))
        if len(list(outbox.glob("*.damaged"))) != 3:
            raise Broken("what was damaged is gone")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        raise CannotBeTried(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    try:
        with (disk / "filler").open("ab") as filler:
            while True:
                filler.write(b"\0" * 4096)
                filler.flush()
    except OSError:
        return
