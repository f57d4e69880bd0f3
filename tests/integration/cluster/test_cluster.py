"""Tasks on workers of a cluster, while workers, schedulers and disks fail."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.needs import needs

pytestmark = [
    needs("dask"),
    # What watches the workers must not end by an error that nobody sees.
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]

WORKERS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple]:  # type: ignore[type-arg]
    from support.cluster_tasks import local_cluster

    with local_cluster(WORKERS) as running:
        yield running


@pytest.fixture
def back(cluster: tuple) -> Iterator[None]:  # type: ignore[type-arg]
    """Wait for workers that a test ended."""
    from support.cluster_tasks import wait_for

    yield
    running = cluster[0]

    def all_are_back() -> bool:
        now = running._fitting_workers(running._link.client)
        return len(now) == WORKERS and now == running._link.workers

    wait_for(all_are_back)


def test_files_go_and_come_back_by_hash(cluster: tuple, tmp_path: Path) -> None:  # type: ignore[type-arg]
    from support.cluster_tasks import Copy

    here, out = tmp_path / "here", tmp_path / "out"
    here.mkdir()
    out.mkdir()
    (here / "model.bin").write_bytes(b"weights" * 1000)

    made, pid = cluster[0].run(
        Copy(here / "model.bin", out), {"out": out}, {"here": (here, (here / "model.bin",))}
    )

    assert pid != os.getpid()
    assert made == out / "deep" / "twice.bin"
    assert made.read_bytes() == b"weights" * 2000
    assert (out / "same.bin").read_bytes() == b"weights" * 1000


def test_what_the_client_has_is_not_sent_again(tmp_path: Path) -> None:
    from support.cluster_tasks import Copy

    from edgekit.base.files import sha256_bytes
    from edgekit.cluster.carried import pack
    from edgekit.cluster.task import Delivery, Order, _performed

    folders = {"out": Path("/client/out"), "here": Path("/client/here")}
    task = pack(Copy(Path("/client/here/x"), Path("/client/out")), folders)
    digest = sha256_bytes(b"abc")
    order = Order(task, ("out",), (("here", "x", digest),), frozenset({digest}))

    delivery = _performed(order, tmp_path, (b"abc",))

    assert isinstance(delivery, Delivery)
    assert {path for _, path, _ in delivery.files} == {"same.bin", "deep/twice.bin"}
    assert list(delivery.contents.values()) == [b"abcabc"]


def test_a_file_that_is_not_its_hash_is_refused(tmp_path: Path) -> None:
    from edgekit.base.errors import BuildError
    from edgekit.cluster.carried import pack
    from edgekit.cluster.task import Delivery, receive

    delivery = Delivery(pack(1, {}), (("out", "x", "0" * 64),), {"0" * 64: b"other"})

    with pytest.raises(BuildError, match="not what it announced"):
        receive(delivery, {"out": tmp_path})
    assert not list(tmp_path.iterdir())


def test_a_task_s_error_is_the_caller_s(cluster: tuple) -> None:  # type: ignore[type-arg]
    from support.cluster_tasks import Fail

    from edgekit.base.errors import UnsupportedModelError

    with pytest.raises(UnsupportedModelError, match="no such operator") as caught:
        cluster[0].run(Fail(UnsupportedModelError("no such operator", hint="leave it out")), {})
    assert caught.value.hint == "leave it out"


def test_a_dead_worker_costs_its_task_a_retry(
    cluster: tuple,  # type: ignore[type-arg]
    back: None,
    tmp_path: Path,
) -> None:
    from support.cluster_tasks import Note

    log = tmp_path / "log"

    assert cluster[0].run(Note(str(log), 7, kills=1), {}) == 7
    assert len({line.split()[1] for line in log.read_text().splitlines()}) == 2


def test_a_task_that_kills_two_workers_is_at_fault(
    cluster: tuple,  # type: ignore[type-arg]
    back: None,
    tmp_path: Path,
) -> None:
    from support.cluster_tasks import Note

    from edgekit.cluster.cluster import TaskKills

    log = tmp_path / "log"

    with pytest.raises(TaskKills):
        cluster[0].run(Note(str(log), 7, kills=9), {})
    assert len(log.read_text().splitlines()) == 2


def test_a_killed_scheduler_loses_and_doubles_no_answer(tmp_path: Path) -> None:
    from support.cluster_tasks import Note, local_cluster, wait_for

    log = tmp_path / "log"
    with local_cluster(WORKERS) as (running, started), ThreadPoolExecutor(4) as callers:
        scheduler = started.processes[0]
        answers = [
            callers.submit(running.run, Note(str(log), number, 0.3), {}) for number in range(12)
        ]
        wait_for(lambda: sum(answer.done() for answer in answers) >= 3)
        os.kill(scheduler.process.pid, signal.SIGKILL)
        assert sorted(answer.result(120) for answer in answers) == list(range(12))
        # A scheduler that goes while nothing is under way is looked for too.
        first = running._link
        os.kill(scheduler.process.pid, signal.SIGKILL)
        wait_for(lambda: running._link is not first and running.width == WORKERS)
        assert running.run(Note(str(log), 12), {}) == 12


def test_a_worker_without_disk_gets_no_tasks(
    cluster: tuple,  # type: ignore[type-arg]
    tmp_path: Path,
) -> None:
    from support.cluster_tasks import FillDisk, Note, wait_for

    running, started = cluster
    assert running.run(FillDisk(str(tmp_path / "flag")), {}) != "lost"
    wait_for(lambda: running.width == WORKERS - 1)
    for number in range(4):
        running.run(Note(str(tmp_path / "log"), number), {})
    workers = {line.split()[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert len(workers) == 1
    # A new process has its disk back.
    for one in started.processes[1:]:
        if str(one.process.pid) not in workers:
            os.kill(one.process.pid, signal.SIGKILL)
    wait_for(lambda: running.width == WORKERS)


def test_workers_of_another_version_are_left_out(
    cluster: tuple,  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from support.cluster_tasks import HERE, wait_for

    from edgekit.base.errors import DeviceError
    from edgekit.base.events import Events, Warned
    from edgekit.cluster.cluster import Cluster

    warned: list[str] = []
    events = Events(lambda event: warned.append(event.text) if isinstance(event, Warned) else None)
    needs = replace(HERE, packages=(("apache-tvm", "9.9"),), python="2.7")
    monkeypatch.setattr("edgekit.cluster.cluster._SECONDS_WITHOUT_WORKERS", 3.0)
    other = Cluster(cluster[1].address, cluster[1].credentials, needs, events)
    try:
        wait_for(lambda: len(warned) >= 2 * WORKERS)
        assert other.width == 0
        with pytest.raises(DeviceError, match=r"no worker .* was fit") as caught:
            other.wait_for_workers()
    finally:
        other.close()
    assert cluster[0].width == WORKERS
    assert any("apache-tvm" in line and "9.9 is needed" in line for line in caught.value.details)
    assert any("Python" in line and "2.7 is needed" in line for line in caught.value.details)
    refused = {line.partition(" is left out")[0] for line in warned if " is left out" in line}
    assert refused == {"worker 1", "worker 2"}


def test_without_its_certificate_nobody_gets_in(
    cluster: tuple,  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import distributed
    from support.cluster_tasks import HERE

    from edgekit.base.errors import DeviceError
    from edgekit.cluster.certificates import make_certificates
    from edgekit.cluster.cluster import Cluster

    address = cluster[1].address
    monkeypatch.setattr("edgekit.cluster.cluster.SECONDS_TO_CONNECT", 2.0)
    with pytest.raises(DeviceError, match="does not answer"):
        Cluster(address, make_certificates()["client"], HERE)
    with pytest.raises(OSError):
        distributed.Client(address.replace("tls", "tcp"), timeout=2)


def test_everything_listens_on_the_loopback_alone(cluster: tuple) -> None:  # type: ignore[type-arg]
    import psutil

    for one in cluster[1].processes:
        process = psutil.Process(one.process.pid)
        listening = [c for c in process.net_connections("inet") if c.status == "LISTEN"]
        assert listening
        assert {connection.laddr.ip for connection in listening} <= {"127.0.0.1", "::1"}


def test_closing_ends_what_is_under_way(tmp_path: Path) -> None:
    from support.cluster_tasks import Note, local_cluster, wait_for

    from edgekit.cluster.cluster import ClusterClosed

    ended: list[BaseException] = []
    with local_cluster(1) as (running, started):

        def ask() -> None:
            try:
                running.run(Note(str(tmp_path / "log"), 1, 600.0), {})
            except ClusterClosed as error:
                ended.append(error)

        caller = threading.Thread(target=ask)
        caller.start()
        wait_for((tmp_path / "log").exists)
        running.close()
        caller.join(30)
        pids = [one.process.pid for one in started.processes]
    assert len(ended) == 1
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port_of(started.address))):
        pass


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
