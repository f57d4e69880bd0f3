"""Searches in the store for real: SQLite files and a PostgreSQL server, kills, lost connections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from support.building import CHECKOUT, run_edgekit
from support.needs import needs
from support.rpc_lab import eventually
from support.stores import (
    A_TARGET,
    A_WORKLOAD,
    Postgres,
    a_cost,
    a_point,
    a_record,
    a_session,
    save_records,
    save_session,
)

from edgekit.base.errors import StorageError, UsageError
from edgekit.base.events import Event, Events, Warned
from edgekit.building.tuned_kernels import measured_choices
from edgekit.compiler.schedules.choices import NO_CHOICES, VERSION, ProductChoice, choice_as_json
from edgekit.profiles.cpu import Target
from edgekit.store.address import findings_folder, waiting
from edgekit.store.database import Store, close_store, open_store, write
from edgekit.store.findings import Findings
from edgekit.store.lookup import best_records, region_costs
from edgekit.store.moments import now
from edgekit.store.outbox import deliver_findings, post_findings
from edgekit.store.saving import save_findings
from edgekit.store.tuning import (
    failures_of,
    find_session,
    kernels_of,
    progress_of,
    record_heartbeat,
    records_of,
    running_sessions,
    sessions,
)
from edgekit.store.tuning_log import tuning_log
from edgekit.store.tuning_runs import Workload

WRITER = """
import sys
from support.stores import a_point, a_record, a_session
from edgekit.store.tuning_log import tuning_log
from edgekit.store.tuning_runs import Workload
from edgekit.building.tuned_kernels import measured_choices
with tuning_log(a_session(), sys.argv[1]) as log:
    for number in range(100_000):
        log.add([a_record(2 * number), a_record(2 * number + 1)], a_point(number))
        print(number, flush=True)
"""


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_records_and_points_come_back_whole_and_once(store: Store) -> None:
    records = [
        a_record(1, workload=replace(A_WORKLOAD, module='["much"]')),
        a_record(2, best_us=None, own_us=None, error="timeout"),
        a_record(3, session=None, choice={"family": "trace", "trace": [[], {"a": None}]}),
    ]
    save_session(store, a_session())
    assert save_records(store, records, a_point(1)) == 3
    assert save_records(store, records, a_point(1)) == 0, "they are there already"
    save_records(store, [], a_point(2))

    found = records_of(store, A_WORKLOAD.key, A_TARGET, 1)
    assert [replace(r, workload=A_WORKLOAD) for r in found] == [
        replace(r, workload=A_WORKLOAD) for r in records
    ]
    assert {r.workload.module for r in found} == {'["much"]'}
    assert progress_of(store, "5" * 32) == (a_point(1), a_point(2))
    assert records_of(store, A_WORKLOAD.key, A_TARGET, 2) == ()


def test_a_workload_gets_its_module_when_somebody_knows_it(store: Store) -> None:
    save_records(store, [a_record(1)])
    save_records(store, [a_record(2, workload=replace(A_WORKLOAD, module="[]"))])
    save_records(store, [a_record(3, workload=replace(A_WORKLOAD, module="[1]"))])
    (first, *_) = records_of(store, A_WORKLOAD.key, A_TARGET, 1)
    assert first.workload.module == "[]"


def test_the_best_is_held_against_the_rules_choice_of_the_same_device(
    store: Store, store_url: str
) -> None:
    other = replace(A_WORKLOAD, key="product-4567")
    save_records(
        store,
        [
            a_record(1, best_us=80.0, own_us=100.0),
            a_record(2, best_us=60.0, own_us=60.0, device="overclocked"),
            a_record(3, best_us=10.0, own_us=100.0, error="numbers"),
            a_record(4, best_us=None, own_us=None, error="compile"),
            a_record(5, workload=other, best_us=7.0, own_us=None),
        ],
    )
    best = best_records(A_TARGET, 1, store_url)
    assert {key: record.best_us for key, record in best.items()} == {
        A_WORKLOAD.key: 80.0,
        other.key: 7.0,
    }
    assert best[A_WORKLOAD.key].choice == a_record(1).choice
    assert best[other.key].own_us is None
    assert best_records(A_TARGET, 2, store_url) == {}
    assert best_records(A_TARGET + " ", 1, store_url) == {}


def test_of_a_choice_that_was_measured_again_the_newest_counts(
    store: Store, store_url: str
) -> None:
    lucky = a_record(1, best_us=10.0)
    save_records(store, [lucky, a_record(2, choice=lucky.choice, best_us=90.0)])
    assert best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key].best_us == 90.0
    save_records(store, [a_record(3, best_us=95.0)])
    assert best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key].best_us == 90.0
    wrong = a_record(4, choice=lucky.choice, best_us=None, error="numbers")
    save_records(store, [wrong, a_record(5, choice=lucky.choice, error="device", best_us=None)])
    assert best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key].best_us == 95.0, (
        "its numbers were wrong"
    )


def test_a_time_without_one_beside_it_is_held_against_the_newest_of_the_rules(
    store: Store, store_url: str
) -> None:
    save_records(
        store,
        [
            a_record(1, best_us=50.0, own_us=200.0, device="slow"),
            a_record(2, best_us=90.0, own_us=100.0),
            a_record(3, best_us=40.0, own_us=None),
        ],
    )
    best = best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key]
    assert (best.best_us, best.own_us) == (50.0, 200.0)
    save_records(store, [a_record(4, best_us=20.0, own_us=None)])
    best = best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key]
    assert (best.best_us, best.own_us) == (20.0, 100.0)


def test_hosts_that_save_at_once_agree_on_the_best(store: Store, store_url: str) -> None:
    """Each host saves its records one by one; the very best comes from one in the middle."""
    times = [[100.0 + (37 * (5 * host + n)) % 64 for n in range(12)] for host in range(4)]
    times[2][5] = 1.0

    def save(host: int) -> None:
        own = open_store(store_url)
        for n, best_us in enumerate(times[host]):
            save_records(own, [a_record(100 * host + n, best_us=best_us, own_us=200.0)])
        close_store(own)

    with ThreadPoolExecutor(4) as hosts:
        list(hosts.map(save, range(4)))

    assert best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key].best_us == 1.0
    assert len(records_of(store, A_WORKLOAD.key, A_TARGET, 1)) == 48


def test_an_older_store_knows_its_best_records_once_it_is_opened(
    store: Store, store_url: str
) -> None:
    save_records(store, [a_record(n, best_us=100.0 - n, own_us=200.0) for n in range(5)])

    def forget(connection: Connection) -> None:
        connection.execute(text("DROP TABLE best_records"))
        connection.execute(text("UPDATE edgekit_store SET version = 8"))

    write(store, forget)

    assert best_records(A_TARGET, 1, store_url)[A_WORKLOAD.key].best_us == 96.0


def test_sessions_tell_how_they_ended(store: Store) -> None:
    save_session(store, a_session())
    assert running_sessions(store) == sessions(store)
    save_session(store, a_session(state="done", ended_at=now()))
    (ended,) = sessions(store)
    assert ended.state == "done"
    assert ended.ended_at is not None
    assert running_sessions(store) == ()
    save_session(
        store, a_session(started_at="2020-01-01T00:00:00.000000Z", heard_at=ended.started_at)
    )
    assert sessions(store) == (ended,), "an older description changes nothing"
    assert find_session(store, "latest") == find_session(store, "5555") == ended
    for name in ("555", "6666", "nonsense"):
        with pytest.raises(UsageError):
            find_session(store, name)


def test_the_end_of_a_session_counts_although_a_heartbeat_overtook_it(store: Store) -> None:
    save_session(store, a_session())
    moment = now()
    record_heartbeat(store, "5" * 32)
    save_session(store, a_session(state="done", ended_at=moment, heard_at=moment))
    assert [session.state for session in sessions(store)] == ["done"]
    save_session(store, a_session(heard_at=now()))
    assert [session.state for session in sessions(store)] == ["done"]


def test_a_session_whose_process_is_gone_is_interrupted(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        boot, _, _ = a_session().process.split()
        started = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        save_session(store, a_session(process=f"{boot} {other.pid} {started}"))
        save_session(store, a_session(id="6" * 32, process=f"{boot} {other.pid} 1"))
        save_session(store, a_session(id="7" * 32, host="elsewhere", process=f"{boot} 1 1"))
        assert [s.id[0] for s in running_sessions(store)] == ["7", "5"]
        other.communicate(b"")
    assert [s.id[0] for s in running_sessions(store)] == ["7"]
    old = "2026-03-01T12:00:00.000000Z"
    silent = a_session(id="8" * 32, host="elsewhere", started_at=old, heard_at=old)
    save_session(store, silent)
    states = {s.id[0]: s.state for s in sessions(store)}
    assert states == {"7": "running", "5": "interrupted", "6": "interrupted", "8": "interrupted"}


def test_a_sign_of_life_keeps_a_session_that_measures_slowly(store: Store) -> None:
    old = "2026-03-01T12:00:00.000000Z"
    save_session(store, a_session(host="elsewhere", started_at=old, heard_at=old))
    assert running_sessions(store) == ()
    record_heartbeat(store, "5" * 32)
    assert len(running_sessions(store)) == 1
    save_session(store, a_session(state="failed", ended_at=now()))
    record_heartbeat(store, "5" * 32)
    assert sessions(store)[0].state == "failed"


def test_a_session_tells_what_it_did_for_each_kernel(store: Store) -> None:
    other = replace(A_WORKLOAD, key="product-4567", words="matrix product")
    save_records(
        store,
        [
            a_record(1, best_us=90.0),
            a_record(2, best_us=80.0),
            a_record(3, best_us=None, error="compile"),
            a_record(4, workload=other, best_us=None, error="timeout"),
            a_record(5, session="6" * 32, best_us=1.0),
        ],
    )
    first, second = kernels_of(store, "5" * 32)
    assert (first.words, first.trials, first.failed) == ("convolution", 3, 1)
    assert (first.best_us, first.own_us, first.choice) == (80.0, 100.0, a_record(2).choice)
    assert (second.trials, second.failed, second.best_us, second.choice) == (1, 1, None, None)
    assert failures_of(store, "5" * 32) == {"compile": 1, "timeout": 1}


def test_of_a_region_the_newest_measurement_stays_whichever_arrives_first(
    store: Store, store_url: str
) -> None:
    older = a_cost(library_us=70.0, measured_at="2025-01-01T00:00:00.000000Z")
    save_findings(store, [Findings(regions=(a_cost(),)), Findings(regions=(older,))])
    save_findings(store, [Findings(regions=(a_cost(board="rpi5"), a_cost(version="2.0")))])
    assert set(region_costs("rpi4", store_url)) == {a_cost(), a_cost(version="2.0")}


def test_findings_that_come_after_one_that_fails_are_not_half_there(store: Store) -> None:
    good, bad = a_record(1), a_record(2, device=None)
    with pytest.raises(Exception, match=r"(?i)null"):
        save_records(store, [good, bad], a_point(1))
    assert records_of(store, A_WORKLOAD.key, A_TARGET, 1) == ()
    assert progress_of(store, "5" * 32) == ()


def test_a_killed_search_loses_nothing_that_it_had_kept(store: Store, store_url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, store_url],
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    process.wait(timeout=300)

    torn = findings_folder(store_url) / ".1-2.json.0123456789ab.edgekit-tmp"
    torn.write_text('{"format"')
    deliver_findings(store, findings_folder(store_url))
    kept = {int(r.id, 16) for r in records_of(store, A_WORKLOAD.key, A_TARGET, 1)}
    points = {point.trials // 8 for point in progress_of(store, "5" * 32)}
    assert {2 * number + part for number in told for part in (0, 1)} <= kept
    assert kept == {2 * number + part for number in points for part in (0, 1)}, "a torn record"
    (session,) = sessions(store)
    assert session.state == "interrupted"
    assert list(findings_folder(store_url).iterdir()) == []


def test_what_can_not_be_written_is_told_of_and_written_when_it_can(store_url: str) -> None:
    """As on a disk that was full for a while."""
    heard: list[Event] = []
    folder = findings_folder(store_url)
    with tuning_log(a_session(), store_url, Events(heard.append)) as log:
        eventually(lambda: waiting(folder) == ())
        folder.rmdir()
        folder.write_text("in the way")
        log.add([a_record(1)], a_point(1))
        assert any(isinstance(event, Warned) for event in heard)
        folder.unlink()
        log.add([a_record(2)], a_point(2))
    opened = open_store(store_url)
    assert len(records_of(opened, A_WORKLOAD.key, A_TARGET, 1)) == 2
    assert len(progress_of(opened, "5" * 32)) == 2
    assert sessions(opened)[0].state == "done"
    close_store(opened)


def test_a_search_that_could_keep_nothing_does_not_begin(store_url: str) -> None:
    folder = findings_folder(store_url)
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    with pytest.raises(StorageError), tuning_log(a_session(), store_url):
        pytest.fail("it began")


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt, "interrupted"), (ValueError, "failed")]
)
def test_a_session_tells_how_it_was_cut_off(
    store: Store, store_url: str, error: type[BaseException], state: str
) -> None:
    with pytest.raises(error), tuning_log(a_session(), store_url):
        raise error
    assert sessions(store)[0].state == state


@needs("postgresql")
def test_a_server_that_is_gone_costs_a_search_nothing_but_a_warning(postgres: Postgres) -> None:
    heard: list[Event] = []
    session = a_session(id="9" * 32)
    postgres.kill()
    try:
        with tuning_log(session, postgres.url, Events(heard.append)) as log:
            log.add([a_record(70_001, session=session.id)], a_point(1, session=session.id))
        assert len(waiting(findings_folder(postgres.url))) == 3
        warnings = [event.text for event in heard if isinstance(event, Warned)]
        assert any("results wait in" in warning for warning in warnings)
    finally:
        postgres.start()

    store = open_store(postgres.url)
    assert deliver_findings(store, findings_folder(postgres.url)) == 1
    assert find_session(store, "9999").state == "done"
    assert len(kernels_of(store, session.id)) == len(progress_of(store, session.id)) == 1
    close_store(store)


BUILDER = """
import sys
from edgekit.profiles.cpu import Target
from edgekit.building.tuned_kernels import measured_choices
target = Target("llvm", "aarch64-linux-gnu", "cortex-a72", (), 4)
print(sorted(measured_choices(target).of_kernel))
"""


def test_two_hosts_with_one_store_use_what_the_other_one_measured(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    """Each has a data folder of its own; nothing but the store is between them."""
    target = Target("llvm", "aarch64-linux-gnu", "cortex-a72", (), 4)

    def built_on(host: str) -> str:
        data = {"XDG_DATA_HOME": str(tmp_path / host), "EDGEKIT_STORE": store_url}
        done = subprocess.run(
            [sys.executable, "-c", BUILDER],
            env={**os.environ, **data, "PYTHONPATH": str(CHECKOUT)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert built_on("one") == "[]\n"
    workload = Workload("product-0123", target.as_json(), VERSION, "convolution")
    choice = choice_as_json(ProductChoice(unrolled=8))
    with tuning_log(a_session(), store_url) as log:
        log.add([a_record(1, workload=workload, choice=choice)])
    assert built_on("one") == built_on("two") == "['product-0123']\n"
    slower = a_record(2, workload=workload, choice=choice, best_us=99.5)
    post_findings(Findings(records=(slower,)), findings_folder(store_url))
    assert measured_choices(target, store_url) == NO_CHOICES, "this host brings it along"
    assert built_on("two") == "[]\n"


def told(folder: Path, url: str, *arguments: str, code: int = 0) -> str:
    extra = {"EDGEKIT_STORE": url, "XDG_DATA_HOME": str(folder / "data")}
    ran = run_edgekit("results", "tuning", *arguments, folder=folder, extra=extra)
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    return ran.out + ran.err


def test_the_command_tells_of_sessions_and_of_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    assert "no tuning session" in told(tmp_path, url)
    assert "no tuning session yet" in told(tmp_path, url, "latest", code=2)
    store = open_store(url)
    save_session(store, a_session(state="done", ended_at=now()))
    failed = a_record(3, best_us=None, error="timeout")
    for number in range(30):
        records = [a_record(1), a_record(2, best_us=50.0), failed] if not number else []
        save_records(store, records, a_point(number))
    close_store(store)

    listed = told(tmp_path, url)
    assert "kitchen, cellar" in listed
    assert "1.94x" in listed
    shown = " ".join(told(tmp_path, url, "5555").split())
    for words in ("net on kitchen, cellar: done", "1 timeout", "2x product", "1.94x"):
        assert words in shown
    document = json.loads(told(tmp_path, url, "latest", "--json"))
    assert len(document["curve"]) == 30
    assert document["failures"] == {"timeout": 1}
    assert document["kernels"][0]["best_us"] == 50.0
    (summary,) = json.loads(told(tmp_path, url, "--json"))["sessions"]
    assert summary["progress"]["trials"] == 232
