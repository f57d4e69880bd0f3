"""A cluster from a client's side: tasks go to fitting workers, and each is answered exactly once.

What a lost worker had under way runs again on another one, by Dask. What a lost scheduler had under
way is sent again from here, because a task's result exists when its caller has it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file
from edgekit.base.wording import counted, duration
from edgekit.cluster.carried import pack
from edgekit.cluster.certificates import Credentials, read_credentials
from edgekit.cluster.fitness import TOPIC, Fitness, Needs
from edgekit.cluster.place import Place, Running
from edgekit.cluster.serving import SECONDS_TO_CONNECT, SETTINGS, hush, security_of
from edgekit.cluster.starting import started
from edgekit.cluster.task import Order, ResultT, Task, Unfit, perform, receive

_LOOK_SECONDS = 2.0
"""The time between looks at the workers."""
_SECONDS_WITHOUT_WORKERS = 900.0
"""The longest wait for a scheduler and a worker: what was measured is kept anyway."""
_MOST_STRANDINGS = 2
_SECONDS_TO_ARRIVE = 60.0
"""The longest way of a finished task's files to this host."""
_LOST = (
    *(CancelledError, asyncio.CancelledError, CommClosedError, OSError, TimeoutError),
    asyncio.TimeoutError,
    UnboundLocalError,  # of Dask's `sync`, when what it waits for is cancelled
)
"""How Dask tells that the scheduler, or a file on its way to a worker, is lost."""


class TaskKills(Exception):
    """Two workers died of a task."""


class ClusterClosed(Exception):
    """The cluster was closed while a task was under way."""


@dataclass
class _Link:
    """A connection to a scheduler; a lost one is replaced."""

    client: Any
    scheduler: str
    """The id of the scheduler: Dask's client may find another one by itself, without the tasks."""
    workers: dict[str, int]
    """The lanes of the fitting workers, by address."""
    sent: dict[str, Any] = field(default_factory=dict)
    """Files that workers have, by hash."""

    @property
    def is_lost(self) -> bool:
        return str(self.client.status) != "running"


class Cluster:
    """Does tasks on workers. Any thread may call it."""

    def __init__(
        self, address: str, credentials: Credentials, needs: Needs, events: Events = SILENT
    ) -> None:
        self.address = address
        self._security = security_of(credentials)
        self._needs = needs
        self._events = events
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._link = self._connected()
        self._watch = threading.Thread(target=self._watch_workers, daemon=True)
        self._watch.start()

    @property
    def width(self) -> int:
        """How many tasks the fitting workers do at the same time at the moment."""
        return sum(self._link.workers.values())

    @property
    def dashboard(self) -> str:
        """The URL of Dask's page; empty if the scheduler has none."""
        link = str(self._link.client.dashboard_link or "")
        return link if link.startswith("http") else ""

    def run(
        self,
        task: Task[ResultT],
        folders: Mapping[str, Path],
        sends: Mapping[str, tuple[Path, tuple[Path, ...]]] | None = None,
    ) -> ResultT:
        """Do a task on a worker, and return its answer; raise its error.

        Files that it leaves in `folders` come back. `sends` are folders with the files in them that
        it reads. TaskKills if two workers died of it; DeviceError if there are none for long.
        """
        sends = sends or {}
        known = {**folders, **{name: folder for name, (folder, _) in sends.items()}}
        sent = {
            (name, path.relative_to(folder).as_posix()): path
            for name, (folder, paths) in sends.items()
            for path in paths
        }
        order = Order(
            pack(task, known),
            tuple(folders),
            tuple((*key, self._hash(path)) for key, path in sent.items()),
            frozenset(
                self._hash(path)
                for folder in folders.values()
                if folder.is_dir()
                for path in folder.iterdir()
                if path.is_file()
            ),
        )
        strandings = 0
        while True:
            link = self._fitting_link()
            try:
                delivery = self._ordered(link, order, list(sent.values()))
            except KilledWorker as error:
                raise TaskKills("two workers of the cluster died of it") from error
            except (*_LOST, Exception) as error:
                # A client that is closed while threads wait for it raises whatever it comes to.
                if not isinstance(error, _LOST) and self._link is link and not link.is_lost:
                    raise
                self._lost(link, error)
                continue
            if isinstance(delivery, Unfit):
                self._tell(f"{delivery.worker} gets no tasks for now: {delivery.reason}")
            elif delivery is not None:
                answer: ResultT = receive(delivery, known)
                return answer
            elif (strandings := strandings + 1) == _MOST_STRANDINGS:
                raise TaskKills("all workers of the cluster died while they had it, twice")

    def wait_for_workers(self) -> None:
        """Wait for a worker that fits; DeviceError with the others' reasons if none does."""
        self._fitting_link()

    def close(self) -> None:
        """Leave the cluster; tasks under way raise ClusterClosed."""
        self._closed.set()
        with self._lock:
            _closed_client(self._link.client, self._needs.resource)
        self._watch.join()

    def _ordered(self, link: _Link, order: Order, paths: list[Path]) -> Any:
        """Return the delivery; None if the workers that could do it are gone, and others came."""
        contents = [
            self._scattered(link, digest, path)
            for (_, _, digest), path in zip(order.sent, paths, strict=True)
        ]
        resource = self._needs.resource
        able = set(link.workers)
        future = link.client.submit(
            *(perform, order, resource, *contents), resources={resource: 1}, pure=False
        )
        is_done = threading.Event()
        future.add_done_callback(lambda done: is_done.set())
        try:
            while not is_done.wait(_LOOK_SECONDS):
                if self._closed.is_set():
                    raise ClusterClosed
                if link.is_lost or self._link is not link:
                    raise CommClosedError("the scheduler is gone")
                # Dask does not look again at tasks for which there was no worker.
                if link.workers and not able & set(link.workers) and _is_stranded(link, future):
                    return None
            return future.result(timeout=_SECONDS_TO_ARRIVE)
        finally:
            with suppress(*_LOST, RuntimeError):
                future.release()

    def _scattered(self, link: _Link, digest: str, path: Path) -> Any:
        if digest not in link.sent:
            link.sent[digest] = link.client.scatter(path.read_bytes(), hash=True)
        return link.sent[digest]

    def _fitting_link(self) -> _Link:
        """Return a connection with a worker that fits."""
        deadline = time.monotonic() + _SECONDS_WITHOUT_WORKERS
        while True:
            if self._closed.is_set():
                raise ClusterClosed
            link = self._link
            if link.is_lost:
                self._lost(link, None)
            elif link.workers:
                return link
            if time.monotonic() > deadline:
                raise DeviceError(
                    f"no worker of {self.address} was fit for {duration(_SECONDS_WITHOUT_WORKERS)}",
                    hint="what was measured is kept: run the same command when there are workers",
                    details=tuple(sorted(self._told)),
                )
            self._closed.wait(0.2)

    def _lost(self, link: _Link, error: BaseException | None) -> None:
        """Replace a connection that was lost; wait for the scheduler to be there again."""
        with self._lock:
            if self._closed.is_set():
                raise ClusterClosed
            if self._link is not link:
                return  # another thread has done so
            self._tell(f"the connection to {self.address} was lost; tasks under way are sent again")
            _closed_client(link.client, None)
            deadline = time.monotonic() + _SECONDS_WITHOUT_WORKERS
            while True:
                try:
                    self._link = self._connected()
                except DeviceError:
                    if time.monotonic() > deadline:
                        raise
                    if self._closed.wait(_LOOK_SECONDS):
                        raise ClusterClosed from error
                else:
                    self._told.clear()
                    return

    def _connected(self) -> _Link:
        hush(logging.CRITICAL)  # what fails is told by its outcome
        try:
            with dask.config.set(SETTINGS):
                client = distributed.Client(
                    self.address,
                    security=self._security,
                    timeout=SECONDS_TO_CONNECT,
                    set_as_default=False,
                )
        except (OSError, TimeoutError, asyncio.TimeoutError) as error:
            raise DeviceError(
                f"the cluster's scheduler at {self.address} does not answer",
                hint="it runs, and its certificate is of the same `edgekit cluster init`?",
                details=(str(error)[:500],),
            ) from error
        client.register_plugin(Fitness(self._needs), name=self._needs.resource)
        return _Link(client, _scheduler_of(client), self._fitting_workers(client))

    def _read_problems(self, client: Any) -> None:
        """Tell which workers are left out. A subscription would miss what came before it."""
        for _, message in client.get_events(TOPIC):
            if message["needs"] == self._needs.resource:
                for problem in message["problems"]:
                    self._tell(f"{message['name']} is left out: {problem}")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._events.warn(text)

    def _watch_workers(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            link, is_other = self._link, False
            # A client that loses its scheduler meanwhile has none to ask: AttributeError.
            with suppress(*_LOST, RuntimeError, ValueError, AttributeError):
                link.workers = self._fitting_workers(link.client)
                self._read_problems(link.client)
                is_other = _scheduler_of(link.client) != link.scheduler
            if link.is_lost or is_other:
                with suppress(ClusterClosed, DeviceError):
                    self._lost(link, None)

    def _fitting_workers(self, client: Any) -> dict[str, int]:
        found = client.scheduler_info(n_workers=-1).get("workers", {})
        lanes = {
            address: int(worker.get("resources", {}).get(self._needs.resource, 0))
            for address, worker in found.items()
        }
        return {address: count for address, count in lanes.items() if count}

    def _hash(self, path: Path) -> str:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._hashes:
            self._hashes[key] = sha256_file(path)
        return self._hashes[key]


def _scheduler_of(client: Any) -> str:
    return str(client.scheduler_info(n_workers=1).get("id", ""))


def _is_stranded(link: _Link, future: Any) -> bool:
    """Return whether no worker has a task that is not done."""
    with_workers = {key for keys in link.client.processing().values() for key in keys}
    return future.key not in with_workers and future.status == "pending"


def _closed_client(client: Any, plugin: str | None) -> None:
    with suppress(*_LOST, RuntimeError, ValueError):
        if plugin is not None and client.status == "running":
            client.unregister_worker_plugin(plugin)
    with suppress(*_LOST, RuntimeError):
        client.close(timeout=2)


@contextmanager
def cluster_at(
    place: Place, needs: Needs, certificates: Path | None = None, events: Events = SILENT
) -> Iterator[Cluster]:
    """Use a cluster for the block; one that is not an address is started, and ends with it."""
    with ExitStack() as closing:
        if isinstance(place, Running):
            address, credentials = place.address, read_credentials("client", certificates)
        else:
            begun = closing.enter_context(started(place, events))
            address, credentials = begun.address, begun.credentials
        with events.stage("reach the cluster") as stage:
            cluster = Cluster(address, credentials, needs, events)
            closing.callback(cluster.close)
            cluster.wait_for_workers()
            lanes = cluster.width
            stage.result = f"{counted(lanes, 'task')} at the same time"
        yield cluster
