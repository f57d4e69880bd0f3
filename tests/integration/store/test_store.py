"""The store for real: SQLite files and a PostgreSQL server, several writers, kills, full disks."""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from support.building import CHECKOUT, run_edgekit, run_with_mount, tmpfs
from support.needs import needs
from support.ports import CLOSED_PORT
from support.stores import (
    A_PROFILE,
    Postgres,
    a_cost,
    a_run,
    a_session,
    all_bench_runs,
    an_evaluation,
)

from edgekit.base.errors import StoreError, UsageError
from edgekit.store.address import findings_folder, runs_folder, waiting
from edgekit.store.bench_runs import (
    RunFilter,
    find_bench_run,
    last_run_of,
    list_bench_runs,
    runs_before,
    save_bench_runs,
)
from edgekit.store.database import Store, close_store, open_store, read, write
from edgekit.store.documents import from_document, written_document
from edgekit.store.evaluations import last_evaluations, list_evaluations
from edgekit.store.findings import Findings
from edgekit.store.lookup import region_costs
from edgekit.store.migrations import NEWEST, STEPS, migrate, version_of
from edgekit.store.outbox import DAMAGED, deliver, post, post_findings
from edgekit.store.queries import VERSION
from edgekit.store.results import export_results, list_accuracy, list_results
from edgekit.store.saving import save_findings
from edgekit.store.tables import metadata
from edgekit.store.tuning import find_session

WRITER = """
import sys
from support.stores import all_bench_runs, a_run
from edgekit.store.bench_runs import save_bench_runs
from edgekit.store.database import open_store
store = open_store(sys.argv[1])
start, count = int(sys.argv[2]), int(sys.argv[3])
for number in range(start, start + count):
    save_bench_runs(store, [a_run(number)])
    print(number, flush=True)
"""


@pytest.fixture
def url(store_url: str) -> str:
    return store_url


def writer(url: str, start: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(start), str(count)],
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_is_saved_comes_back_whole_and_once(store: Store) -> None:
    runs = [a_run(1), a_run(2, 0.020, joules=0.5, notes=()), a_run(3)]
    assert save_bench_runs(store, runs) == 3
    assert save_bench_runs(store, runs) == 0, "they are there already"
    assert all_bench_runs(store) == tuple(runs)
    assert find_bench_run(store, a_run(2).id) == runs[1]
    assert find_bench_run(store, "latest") == runs[2]


def test_the_profile_of_a_run_comes_back_with_the_run_and_in_files(store: Store) -> None:
    profiled = a_run(1, profile=A_PROFILE)
    save_bench_runs(store, [profiled, a_run(2)])
    digest = profiled.build.digest
    assert last_run_of(store, digest, profiled=True) == profiled
    assert last_run_of(store, digest, profiled=False) == a_run(2)
    assert last_run_of(store, "00" * 32, profiled=False) is None
    assert [run.profile for run in list_bench_runs(store, RunFilter())] == [None, None]
    document = "".join(written_document([profiled]))
    assert from_document(json.loads(document)) == (profiled,)


def test_evaluations_come_back_and_the_last_of_a_build_stands_beside_its_runs(
    store: Store,
) -> None:
    other = replace(a_run().build, digest="ef" * 32)
    known = [an_evaluation(1, 0.5), an_evaluation(2), an_evaluation(3, build=other)]
    assert save_findings(store, [Findings(evaluations=tuple(known))]) == 3
    assert save_findings(store, [Findings(evaluations=tuple(known))]) == 0, "they are there already"
    assert list_evaluations(store, RunFilter()) == (known[2], known[1], known[0])
    assert list_evaluations(store, RunFilter(device="unknown")) == ()
    digests = [a_run().build.digest, "00" * 32]
    assert last_evaluations(store, digests) == {digests[0]: known[1]}


def test_an_evaluation_that_waits_is_delivered_and_listed(url: str) -> None:
    post(a_run(1), runs_folder(url))
    post_findings(Findings(evaluations=(an_evaluation(2),)), findings_folder(url))
    listing = list_results(RunFilter(), url)
    assert [listing.accuracy_of(run) for run in listing.runs] == [an_evaluation(2)]
    assert list_accuracy(RunFilter(), url).evaluations == (an_evaluation(2),)


def test_lists_are_of_what_was_asked_the_latest_first(store: Store) -> None:
    save_bench_runs(store, [a_run(n, device="cellar" if n % 2 else "kitchen") for n in range(8)])
    listed = list_bench_runs(store, RunFilter(device="cellar", limit=3))
    assert [int(run.id, 16) for run in listed] == [7, 5, 3]
    assert list_bench_runs(store, RunFilter(model="unknown")) == ()
    before = runs_before(store, a_run(6, device="kitchen"))
    assert [int(run.id, 16) for run in before] == [4, 2, 0]


def test_a_model_may_take_more_memory_than_32_bits_hold(store: Store) -> None:
    large = a_run(1, model_peak=5 << 30, process_peak=6 << 30)
    save_bench_runs(store, [large])
    assert all_bench_runs(store) == (large,)


def test_the_beginning_of_an_id_is_enough_where_it_is_one(store: Store) -> None:
    save_bench_runs(store, [a_run(id="abcd" + "1" * 28), a_run(1, id="abce" + "2" * 28)])
    assert find_bench_run(store, "abcd").id.startswith("abcd1")
    for name in ("abc", "ffff", "%%%%", "nothing"):
        with pytest.raises(UsageError):
            find_bench_run(store, name)
    save_bench_runs(store, [a_run(2, id="abcd" + "3" * 28)])
    with pytest.raises(UsageError, match="several"):
        find_bench_run(store, "abcd")


def test_several_sessions_write_at_once_and_nothing_is_lost(store: Store, url: str) -> None:
    writers = [writer(url, start, 25) for start in (0, 100, 200)]
    for process in writers:
        process.communicate(timeout=300)
        assert process.returncode == 0
    assert len(all_bench_runs(store)) == 75
    counts = read(store, lambda c: c.execute(text("SELECT count(*) FROM builds")).scalar())
    assert counts == 1, "what they have in common is there once"


def test_a_killed_session_loses_nothing_that_it_had_committed(store: Store, url: str) -> None:
    process = writer(url, 0, 100_000)
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    process.wait(timeout=300)
    kept = {int(run.id, 16) for run in all_bench_runs(store)}
    assert set(told) <= kept
    assert len(kept) <= len(told) + 1
    assert save_bench_runs(store, [a_run(999_999)]) == 1, "and the next one can write"


@needs("postgresql")
def test_a_server_that_restarts_in_the_middle_costs_time_only(postgres: Postgres) -> None:
    # How long a server needs to start is this machine's doing.
    store = replace(open_store(postgres.url), attempts=10)
    first = a_run(5_000)
    save_bench_runs(store, [first])
    postgres.kill()
    back = threading.Timer(0.5, postgres.start)
    back.start()
    try:
        assert save_bench_runs(store, [a_run(5_001)]) == 1
    finally:
        back.join()
    ids = {run.id for run in all_bench_runs(store)}
    assert {first.id, a_run(5_001).id} <= ids
    close_store(store)


@needs("postgresql")
def test_a_server_that_is_gone_is_told_without_the_password(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    gone = f"postgresql://somebody:hush@127.0.0.1:{CLOSED_PORT}/postgres"
    with pytest.raises(StoreError) as caught:
        open_store(gone)
    assert "hush" not in str(caught.value)
    assert "hush" not in (caught.value.hint or "")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("version", range(NEWEST))
def test_a_store_of_any_older_version_is_brought_up_with_what_it_holds(
    url: str, version: int
) -> None:
    old = open_store(url)
    write(old, lambda connection: metadata.drop_all(connection))
    write(old, lambda connection: migrate(connection, to=version))
    if version >= 1:
        save_bench_runs(old, [a_run(1)])
    close_store(old)

    store = open_store(url)
    assert read(store, version_of) == NEWEST
    assert all_bench_runs(store) == ((a_run(1),) if version >= 1 else ())
    assert save_bench_runs(store, [a_run(2)]) == 1
    close_store(store)


def test_an_old_store_tells_what_measured_its_records_where_they_say_it(url: str) -> None:
    """As version 5 left it: without the columns that version 6 brought."""
    old = open_store(url)
    runs = [
        a_run(1, unit="instructions", device="chip"),
        a_run(2, unit="cycles", device="chip"),
        a_run(3, device="local"),
        a_run(4, device="rpi4"),
    ]
    save_bench_runs(old, runs)
    sessions = [
        a_session(id="1" * 32, target='{"counted in": "instructions"}'),
        a_session(id="2" * 32, target='{"emulated": {"kind": "llvm"}}'),
        a_session(id="3" * 32, devices=("kitchen",)),
        a_session(id="4" * 32),
    ]
    save_findings(old, [Findings(session=session) for session in sessions])
    costs = (a_cost(), a_cost(board="rpi4 (twin)"))
    save_findings(old, [Findings(regions=costs)])

    def forget(connection: Connection) -> None:
        for table in ("bench_runs", "region_costs", "tuning_sessions"):
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN measured_by"))
        connection.execute(text("ALTER TABLE tuning_sessions DROP COLUMN unit"))
        connection.execute(text("UPDATE edgekit_store SET version = 5"))

    write(old, forget)
    close_store(old)

    store = open_store(url)
    found = {run.id: run.measured_by for run in all_bench_runs(store)}
    assert [found[run.id] for run in runs] == ["emulator", "hardware", "hardware", None]
    read_back = [find_session(store, session.id) for session in sessions]
    assert [(s.measured_by, s.unit) for s in read_back] == [
        ("emulator", "instructions"),
        ("emulator", "seconds"),
        ("hardware", "seconds"),
        (None, "seconds"),
    ]
    close_store(store)
    assert [region_costs(cost.board, url)[0].measured_by for cost in costs] == [
        "hardware",
        "emulator",
    ]


def test_runs_from_before_sizes_varied_are_of_the_largest_sizes(url: str) -> None:
    old = open_store(url)
    save_bench_runs(old, [a_run(1)])

    def forget(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE bench_runs DROP COLUMN sizes"))
        connection.execute(text("UPDATE edgekit_store SET version = 6"))

    write(old, forget)
    close_store(old)

    store = open_store(url)
    save_bench_runs(store, [a_run(2, sizes="ids=1x64")])
    assert {run.id: run.sizes for run in all_bench_runs(store)} == {
        a_run(1).id: "",
        a_run(2).id: "ids=1x64",
    }
    close_store(store)


def test_steps_count_from_one_without_a_gap() -> None:
    assert [step.to for step in STEPS] == list(range(1, NEWEST + 1))
    assert NEWEST == VERSION, "what a build knows of the store"


def test_a_store_of_a_newer_edgekit_is_left_alone(store: Store, url: str) -> None:
    write(store, lambda c: c.execute(text("UPDATE edgekit_store SET version = 99")))
    with pytest.raises(StoreError, match="version 99"):
        open_store(url)


def test_a_database_of_something_else_is_left_alone(url: str) -> None:
    store = open_store(url)
    write(store, lambda connection: metadata.drop_all(connection))
    write(store, lambda connection: connection.execute(text("CREATE TABLE cats (name TEXT)")))
    close_store(store)
    with pytest.raises(StoreError, match="something else: it holds cats"):
        open_store(url)


def test_many_first_comers_make_one_store(url: str) -> None:
    writers = [writer(url, start * 10, 3) for start in range(4)]
    for process in writers:
        process.communicate(timeout=300)
        assert process.returncode == 0
    store = open_store(url)
    assert len(all_bench_runs(store)) == 12
    close_store(store)


def test_a_file_that_somebody_is_just_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ready = threading.Timer(0.5, other.commit)
    ready.start()
    try:
        close_store(open_store(f"sqlite:///{path}"))
    finally:
        ready.join()
        other.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"what somebody else wrote, " * 100)
    with pytest.raises(StoreError, match="no database"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"what somebody else wrote")


TWO_MEANINGS = (
    "postgresql:///d?conninfo=host%3Devil",
    "postgresql://me:x@evil/a@h/d",
    "postgresql://me:a/b@h/d?krbsrvname=x",
)
"""Stores whose name could be of another server than the connection."""
ODD = (
    *TWO_MEANINGS,
    "postgresql://h:port/d",
    "postgresql+asyncpg://h/d",
    "sqlite+foo:///x",
    "sqlite://host/x",
)


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "sqlite://", "sqlite:///:memory:", "not a url", "off", "", *ODD]
)
def test_what_is_no_store_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "off")
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert caught.value.hint


@needs("mounts")
def test_a_full_disk_is_told_and_what_waits_goes_on_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    outbox = runs_folder(f"sqlite:///{disk / 'store.db'}")
    post(a_run(1, samples=tuple(range(10**9, 10**9 + 60_000 * 7919, 7919))), outbox)
    ran = run_with_mount(
        tmpfs("size=120k"),
        disk,
        ["results", "list", "--store", f"sqlite:///{disk / 'store.db'}"],
        folder=tmp_path,
    )
    assert ran.code == 9, ran.err
    assert "full" in ran.err
    assert len(waiting(outbox)) == 1


def test_what_waits_is_delivered_once_and_damaged_files_are_kept_aside(
    store: Store, tmp_path: Path
) -> None:
    outbox = tmp_path / "outbox"
    for number in range(5):
        post(a_run(number), outbox)
    (outbox / "zz.json").write_text('{"id": 1')
    assert deliver(store, outbox) == 5
    assert deliver(store, outbox) == 0
    assert waiting(outbox) == ()
    assert [path.name for path in outbox.iterdir()] == [f"zz{DAMAGED}"]
    assert len(all_bench_runs(store)) == 5


def test_a_store_is_readable_by_any_sqlite(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 's.db'}")
    save_bench_runs(store, [a_run(1)])
    close_store(store)
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        rows = connection.execute("SELECT median, threads FROM bench_runs").fetchall()
        assert rows == [(0.010, 4)]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Results:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.extra = {
            "EDGEKIT_STORE": f"sqlite:///{folder / 's.db'}",
            "XDG_DATA_HOME": str(folder / "data"),
        }

    def __call__(self, *arguments: str, code: int = 0) -> str:
        ran = run_edgekit("results", *arguments, folder=self.folder, extra=self.extra)
        assert ran.code == code, ran.err
        assert "Traceback" not in ran.err
        return ran.out + ran.err


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def test_the_commands_tell_what_is_there(results: Results) -> None:
    assert "nothing is in" in results("list")
    outbox = results.folder / "data" / "edgekit" / "outbox"
    post(a_run(1, 0.010), outbox)
    post(a_run(2, 0.012), outbox)
    assert results("list").count("kitchen") == 2
    shown = json.loads(results("show", "latest", "--json"))
    assert shown["median"] == 0.012
    assert shown["build"]["offload"] == ["ncnn"]
    assert "20.0 % slower" in results("compare", "previous")
    comparison = json.loads(results("compare", "best", "latest", "--json"))
    assert comparison["verdict"] == "slower"
    assert results("compare", "previous", "--fail-above", "25%")
    assert "20.0 % slower, and 5.0 % was allowed" in results(
        "compare", "previous", "--fail-above", "5%", code=12
    )
    assert "and 5.0 % was allowed" in results("compare", "previous", "--fail-above", "5", code=12)
    assert results("compare", "previous", "--fail-above", "25.5")
    assert "is no percentage" in results("compare", "previous", "--fail-above", "much", code=2)


def test_runs_of_an_emulator_are_told_and_compared_with_their_like_alone(
    results: Results,
) -> None:
    outbox = results.folder / "data" / "edgekit" / "outbox"
    board = a_run(1, 0.010)
    post(board, outbox)
    post(a_run(2, 0.030, measured_by="emulator"), outbox)
    assert "30 ms emulated" in results("list")
    assert "an emulator: its times are not the board's" in results("show", "latest")
    assert json.loads(results("show", "latest", "--json"))["measured_by"] == "emulator"
    assert "in seconds (measured by: an emulator)" in results("compare", "previous", code=2)
    said = results("compare", board.id, "--fail-above", "5", code=15)
    assert "hardware measured one run and an emulator the other" in said
    assert "median after" not in said

    post(a_run(3, 0.040, measured_by="emulator"), outbox)
    said = results("compare", "previous")
    assert "33.3 % slower" in said
    assert "measured by an emulator" in said
    counted = a_run(4, 1.5e6, measured_by="emulator", unit="instructions")
    post(counted, outbox)
    said = results("compare", board.id, counted.id, code=15)
    assert "seconds and the other in instructions" in said
    assert "1,500,000 instructions" in results("list")
    assert '"exit_code": 15' in results("compare", board.id, counted.id, "--json", code=15)
    results("export", "all.csv")
    with (results.folder / "all.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["measured_by"] for row in rows] == ["hardware", *["emulator"] * 3]


def test_a_busy_device_is_no_regression(results: Results) -> None:
    outbox = results.folder / "data" / "edgekit" / "outbox"
    post(a_run(1, 0.010), outbox)
    busy = replace(a_run().conditions, busy=True)
    post(a_run(2, 0.030, conditions=busy), outbox)
    assert "was busy" in results("compare", "previous", "--fail-above", "5", code=15)


def test_results_travel_in_files(results: Results, tmp_path: Path) -> None:
    outbox = results.folder / "data" / "edgekit" / "outbox"
    post(a_run(1), outbox)
    post(a_run(2, device="=cmd()"), outbox)
    results("export", "all.json")
    results("export", "all.csv")
    table = (tmp_path / "all.csv").read_text().splitlines()
    assert len(table) == 3
    assert "'=cmd()" in table[2], "a spreadsheet would run it"
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert "2 new runs in" in results("import", "all.json", "--store", other)
    assert "0 new runs in" in results("import", "all.json", "--store", other)
    assert json.loads(results("list", "--store", other, "--json"))["runs"][1]["id"] == a_run(1).id
    (tmp_path / "half.json").write_bytes((tmp_path / "all.json").read_bytes()[:500])
    results("import", "half.json", code=3)
    results("export", "all.xlsx", code=2)
    assert not (tmp_path / "all.xlsx").exists()


def test_a_projects_store_holds_no_password(results: Results, tmp_path: Path) -> None:
    del results.extra["EDGEKIT_STORE"]
    results.extra["EDGEKIT_STORE"] = ""
    project = tmp_path / "edgekit.toml"
    project.write_text('schema = 1\n[store]\nurl = "postgresql://me:secret@db/x"\n')
    said = results("list", code=3)
    assert "password" in said
    assert "secret" not in said
    project.write_text('schema = 1\n[store]\nurl = "postgresql://db/x?password=secret"\n')
    assert "secret" not in results("list", code=3)
    project.write_text(f'schema = 1\n[store]\nurl = "sqlite:///{tmp_path / "team.db"}"\n')
    assert "team.db" in results("list")


def test_runs_wait_for_their_own_store_and_for_no_projects(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was measured in one folder does not go into a store that another folder names."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    mine, theirs = (f"sqlite:///{tmp_path / name}.db" for name in ("mine", "theirs"))
    post(a_run(1), runs_folder(mine))
    before = tmp_path / "data" / "edgekit" / "outbox"
    post(a_run(2), before)  # from a version that did not know for which store
    results.extra["EDGEKIT_STORE"] = mine

    listed = json.loads(results("list", "--store", theirs, "--json"))
    assert listed["runs"] == []
    assert len(waiting(before)) == 1

    listed = json.loads(results("list", "--json"))
    assert {run["id"] for run in listed["runs"]} == {a_run(1).id, a_run(2).id}
    assert waiting(before) == ()


@pytest.mark.slow  # it counts what a million numbers take
def test_an_export_holds_few_runs_in_memory(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    samples = tuple(range(10**9, 10**9 + 2000 * 997, 997))
    store = open_store(url)
    save_bench_runs(store, [a_run(number, samples=samples) for number in range(500)])
    close_store(store)
    del store
    gc.collect()
    tracemalloc.start()
    try:
        for name in ("all.json", "all.csv"):
            assert export_results(tmp_path / name, url).runs == 500
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All of them are a million numbers, of 40 bytes each.
    assert peak < 20 << 20
    exported = json.loads((tmp_path / "all.json").read_bytes())
    assert from_document(exported)[7].samples == samples
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 501
