"""A cluster that compiles: what it costs, how it scales, and what its faults cost.

    python -m benchmarks.cluster [scale] [overhead] [devices] [faults]

Compilers and devices wait instead of working, so that one host can play many; schedulers, workers,
TLS, and the search's own queues are real. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from benchmarks.cluster_tasks import Candidates, Nothing, Wait, WaitingDevice
from edgekit.base.events import Events, Warned
from edgekit.cluster.cluster import Cluster
from edgekit.cluster.fitness import needs_of
from edgekit.cluster.place import Local
from edgekit.cluster.serving import credentials_as_line
from edgekit.cluster.starting import Started, started
from edgekit.tuning.cluster_builders import ClusterBuilders
from edgekit.tuning.crew import Crew

BATCH = 16
"""Candidates of a batch, as a search takes them for fast kernels."""
ROOT = Path(__file__).parents[1]


@contextmanager
def cluster_of(workers: int, lanes: int, told: list[str]) -> Iterator[tuple[Cluster, Started]]:
    """Run workers on this host, each with so many lanes."""
    events = Events(lambda event: told.append(event.text) if isinstance(event, Warned) else None)
    with started(Local(workers, lanes), events) as processes:
        cluster = Cluster(processes.address, processes.credentials, needs_of((), ()), events)
        try:
            wait_for(lambda: cluster.width == workers * lanes, "all workers")
            yield cluster, processes
        finally:
            cluster.close()


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"no {what} in {seconds:g} s")
        time.sleep(0.05)


def search(
    cluster: Cluster, candidates: Candidates, devices: list[WaitingDevice], compiling: float
) -> float:
    """Run a search, and return its seconds."""
    began = time.monotonic()
    crew = Crew(
        ClusterBuilders(cluster, lambda order: Wait(order, compiling)),
        devices,
        lambda taken: "simulated",
        Events(lambda e: None),
    )
    try:
        crew.run(candidates)  # type: ignore[arg-type]
    finally:
        crew.close()
    return time.monotonic() - began


def scale() -> bool:
    """Compare eight workers with one."""
    compiling, batches = 1.0, {1: 20, 8: 160}
    rates = {}
    for workers, count in batches.items():
        with cluster_of(workers, 1, []) as (cluster, _), tempfile.TemporaryDirectory() as folder:
            candidates = Candidates(count, BATCH, Path(folder))
            devices = [WaitingDevice(0.001) for _ in range(8)]
            rates[workers] = count * BATCH / search(cluster, candidates, devices, compiling)
    gain = rates[8] / rates[1]
    print(
        f"one worker      {rates[1]:8.1f} candidates a second ({compiling:g} s a batch of {BATCH})"
    )
    print(f"eight workers   {rates[8]:8.1f}, {gain:.2f} times as many (bar: 7.5)")
    return gain >= 7.5


def overhead() -> bool:
    """Time tasks that do nothing: one after the other, and queued as a search has them."""
    count = 400
    each = {}
    with cluster_of(1, 1, []) as (cluster, processes):
        cluster.run(Nothing(), {})
        for callers in (1, 8):
            began, cpu = time.monotonic(), _cpu_seconds(processes)
            with ThreadPoolExecutor(callers) as threads:
                for _ in threads.map(lambda _: cluster.run(Nothing(), {}), range(count)):
                    pass
            each[callers] = (time.monotonic() - began) / count * 1e3
            cpu = (_cpu_seconds(processes) - cpu) / count * 1e3
            how = "alone" if callers == 1 else "queued"
            print(f"task {how:11}{each[callers]:8.1f} ms, {cpu:.1f} ms of CPU at all ends")
    print(f"overhead a task {each[8]:8.1f} ms (bar: 10)")
    return each[8] <= 10


def _cpu_seconds(processes: Started) -> float:
    """Return the CPU seconds of the client, the scheduler and the workers."""
    times = [
        psutil.Process(one.process.pid).cpu_times() for one in processes.processes if one.process
    ]
    return float(time.process_time() + sum(each.user + each.system for each in times))


def devices() -> bool:
    """Keep 64 devices busy that need 100 ms for a candidate."""
    count, batches, compiling = 64, 64 * 14, 2.0
    boards = [WaitingDevice(0.1) for _ in range(count)]
    with cluster_of(4, 40, []) as (cluster, _), tempfile.TemporaryDirectory() as folder:
        candidates = Candidates(batches, BATCH, Path(folder))
        seconds = search(cluster, candidates, boards, compiling)
    # From the first device's second batch to the end of the first that has no more work.
    first = max(board.busy[1][0] for board in boards)
    last = min(board.busy[-1][1] for board in boards)
    busy = sum(
        max(0.0, min(end, last) - max(begin, first)) for b in boards for begin, end in b.busy
    )
    share = busy / (count * (last - first))
    print(f"{count} devices      {share:8.1%} busy over {last - first:.0f} s (bar: 90 %)")
    print(
        f"                {batches * BATCH / seconds:8.1f} candidates a second with start and end"
    )
    return share >= 0.9


def faults() -> bool:
    """Let everything fail once while a search goes on."""
    told: list[str] = []
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        cluster, processes = closing.enter_context(cluster_of(2, 2, told))
        port = processes.address.rpartition(":")[2]
        proxy = closing.enter_context(_proxy(int(port)))
        join = partial(_joined, closing, processes, folder)
        join("another version", processes.address, **_other_version(folder))
        join("behind a network", f"tls://127.0.0.1:{proxy.port}")
        disk = closing.enter_context(_small_disk(folder))
        if disk is not None:
            join("with a small disk", processes.address, EDGEKIT_CACHE_DIR=str(disk))
        wait_for(lambda: cluster.width >= (6 if disk is None else 8), "all workers")
        wait_for(lambda: any("another version is left out" in text for text in told), "refusal")
        candidates = Candidates(250, BATCH, folder)
        boards = [WaitingDevice(0.02) for _ in range(8)]
        running = threading.Thread(target=search, args=(cluster, candidates, boards, 2.0))
        running.start()

        def after(batches: int, what: str, fault: Callable[[], None]) -> None:
            wait_for(lambda: candidates.finished >= batches, f"batch {batches}", 600)
            print(f"after {candidates.finished:3} batches: {what}", flush=True)
            fault()

        after(20, "a worker is killed", lambda: _kill(processes, 1))
        after(50, "the network to a worker is cut", proxy.cut)
        after(80, "a worker's disk is full", lambda: _fill(disk))
        after(120, "the scheduler is killed", lambda: _kill(processes, 0))
        after(170, "another worker is killed", lambda: _kill(processes, 2))
        running.join()
    expected = {(number, place) for number in range(1, 251) for place in range(BATCH)}
    lost = len(expected - candidates.results.keys()) + len(candidates.failed)
    doubled = sum(count - 1 for count in candidates.results.values())
    for text in told:
        print(f"  told: {text}")
    print(f"{len(expected)} candidates, {lost} lost or failed, {doubled} counted twice")
    for text in sorted(set(candidates.failed)):
        print(f"  {text}")
    if disk is None:
        print("the full disk was not tried: only root can mount a small one")
    return not lost and not doubled


def _kill(processes: Started, number: int) -> None:
    process = processes.processes[number].process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def _joined(
    closing: ExitStack, processes: Started, folder: Path, name: str, address: str, **settings: str
) -> None:
    """Start a worker of this host that is not like the others."""
    words = [sys.executable, "-m", "edgekit", "cluster", "worker", address, "--lanes", "2"]
    log = closing.enter_context((folder / f"{name}.log").open("wb"))
    worker = subprocess.Popen(
        [*words, "--name", name, "--credentials-from-input"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
        cwd="/",
        stdin=subprocess.PIPE,
        stderr=log,
    )
    assert worker.stdin is not None
    worker.stdin.write(credentials_as_line(processes.worker_credentials))
    worker.stdin.flush()
    closing.callback(worker.wait)
    closing.callback(worker.kill)


def _other_version(folder: Path) -> dict[str, str]:
    """Return the environment of an edgekit of another version."""
    copy = folder / "other"
    for name in ("edgekit", "boards", "toolchains", "libraries", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "edgekit/version.py").write_text('__version__ = "0.0.1"\n')
    return {"PYTHONPATH": str(copy)}


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    disk = folder / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=200m", "edgekit", str(disk)]
    if os.geteuid() or subprocess.run(words, check=False).returncode:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def _fill(disk: Path | None) -> None:
    if disk is not None:
        with (disk / "filler").open("wb") as stream, suppress(OSError):
            while True:
                stream.write(bytes(1 << 20))


class _Proxy:
    """A way to the scheduler that can be cut: then nothing passes, and nothing is closed."""

    def __init__(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._to = port
        self._is_cut = threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut.set()

    def close(self) -> None:
        for one in (self._server, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._sockets.append(client)
                if self._is_cut.is_set():
                    continue
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets.append(server)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._is_cut.is_set():
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def _proxy(port: int) -> Iterator[_Proxy]:
    proxy = _Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


PARTS = {part.__name__: part for part in (scale, overhead, devices, faults)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    chosen = parser.parse_args().parts or list(PARTS)
    kept = [PARTS[name]() for name in chosen]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
