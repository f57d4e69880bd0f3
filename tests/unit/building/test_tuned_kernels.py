"""Measured choices are found again, and only where they still hold."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from support.stores import a_record

from edgekit.base.events import Event, Events, Warned
from edgekit.building.tuned_kernels import measured_choices, record_target, tuned_kernels
from edgekit.compiler.schedules.choices import (
    NO_CHOICES,
    VERSION,
    GenericChoice,
    ProductChoice,
    choice_as_json,
)
from edgekit.compiler.schedules.tiles import Tile
from edgekit.profiles.cpu import Target
from edgekit.project.workspace import open_workspace
from edgekit.store import lookup
from edgekit.store.address import findings_folder, waiting
from edgekit.store.findings import Findings
from edgekit.store.outbox import DAMAGED, post_findings
from edgekit.store.tuning_runs import TuningRecord, Workload

HERE = Target("llvm", "x86_64-linux-gnu", "skylake-avx512", (), 2)
THERE = replace(HERE, cpu="haswell")
CHOICE = ProductChoice(Tile(1, 6, 32), unrolled=8)
KERNEL = "product-0123"


def record(number: int = 1, target: Target = HERE, version: int = VERSION) -> TuningRecord:
    workload = Workload(KERNEL, target.as_json(), version, "convolution")
    return a_record(number, workload=workload, choice=choice_as_json(CHOICE))


def keep(*records: TuningRecord) -> None:
    post_findings(Findings(records=records), findings_folder())


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("EDGEKIT_STORE", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lookup, "_problems", {})
    monkeypatch.setattr(lookup, "_told", set())
    return tmp_path / "edgekit" / "measurements.db"


def test_nothing_is_made_where_nothing_was_measured(own_file: Path) -> None:
    assert not tuned_kernels(HERE)
    assert not own_file.exists()


def test_what_a_twin_measured_counts_for_twins_only(own_file: Path) -> None:
    emulated = record()
    workload = replace(emulated.workload, target=record_target(HERE, twin=True))
    keep(replace(emulated, workload=workload))

    assert not tuned_kernels(HERE)
    assert measured_choices(HERE) == NO_CHOICES
    assert tuned_kernels(HERE, twin=True).keys() == {KERNEL}
    assert measured_choices(HERE, twin=True).of_kernel == {KERNEL: CHOICE}


def test_a_twin_goes_by_what_a_board_measured_too(own_file: Path) -> None:
    keep(record())

    assert measured_choices(HERE, twin=True).of_kernel == {KERNEL: CHOICE}


def test_a_choice_counts_for_its_cpu_only(own_file: Path) -> None:
    keep(record())

    (found,) = tuned_kernels(HERE).values()
    assert (found.kernel, found.choice, found.best_us, found.own_us) == (KERNEL, CHOICE, 80, 100)
    assert own_file.exists()
    assert measured_choices(HERE).of_kernel == {KERNEL: CHOICE}
    assert not tuned_kernels(THERE)
    assert not measured_choices(replace(HERE, cores=4)).of_kernel


def test_a_choice_of_other_schedules_is_over() -> None:
    keep(record(version=VERSION + 1))

    assert not tuned_kernels(HERE)


@pytest.mark.parametrize(
    "change",
    [
        {"choice": choice_as_json(GenericChoice())},
        {"best_us": 98.0},
        {"own_us": None},
        {"own_us": None, "best_us": 1e-3},
    ],
)
def test_a_kernel_for_which_nothing_was_better_is_known_and_changes_nothing(
    change: dict[str, object],
) -> None:
    keep(replace(record(), **change))  # type: ignore[arg-type]

    assert KERNEL in tuned_kernels(HERE)
    assert not measured_choices(HERE).of_kernel


def test_a_newer_measurement_of_a_choice_counts_in_place_of_the_older() -> None:
    keep(record(1), record(2, THERE))
    keep(replace(record(3), best_us=70.0))
    keep(replace(record(4, THERE), best_us=90.0))

    assert tuned_kernels(HERE)[KERNEL].best_us == 70.0
    assert tuned_kernels(THERE)[KERNEL].best_us == 90.0


def test_a_choice_that_this_edgekit_can_t_make_is_left_out() -> None:
    keep(replace(record(), choice={"family": "of the future"}))

    assert not tuned_kernels(HERE)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', "[" * 100_000, "\xff"])
def test_a_damaged_file_that_waits_is_put_aside(text: str) -> None:
    keep(record())
    (findings_folder() / "zz.json").write_text(text, encoding="latin-1")

    assert KERNEL in tuned_kernels(HERE)
    assert waiting(findings_folder()) == ()
    assert [path.name for path in findings_folder().iterdir()] == [f"zz{DAMAGED}"]


def test_a_store_that_can_t_be_used_costs_one_warning_and_no_build(own_file: Path) -> None:
    own_file.parent.mkdir(parents=True)
    own_file.write_bytes(b"what somebody else wrote, " * 100)
    heard: list[Event] = []

    assert not measured_choices(HERE).of_kernel
    for _ in range(2):
        assert not measured_choices(HERE, events=Events(heard.append)).of_kernel

    assert len([event for event in heard if isinstance(event, Warned)]) == 1
    assert own_file.read_bytes().startswith(b"what somebody else wrote")


def test_a_file_of_an_older_version_is_brought_up_first(own_file: Path) -> None:
    keep(record())
    assert tuned_kernels(HERE)
    with contextlib.closing(sqlite3.connect(own_file)) as connection:
        for table in ("tuning_sessions", "tuning_progress", "tuning_records", "workloads"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("CREATE TABLE workloads (id INTEGER)")
        connection.execute("CREATE TABLE tuning_records (id INTEGER)")
        connection.execute("UPDATE edgekit_store SET version = 4")
        connection.commit()

    assert not tuned_kernels(HERE)
    keep(record())
    assert tuned_kernels(HERE)


def test_whoever_may_only_read_the_file_reads_it(own_file: Path) -> None:
    keep(record())
    assert tuned_kernels(HERE)
    own_file.chmod(0o444)

    assert os.access(own_file, os.R_OK)
    assert KERNEL in tuned_kernels(HERE)


def test_off_is_asked_nothing(own_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(record())
    monkeypatch.setenv("EDGEKIT_STORE", "off")

    assert not tuned_kernels(HERE)
    assert not own_file.exists()


def test_a_projects_store_is_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'team.db'}"
    (tmp_path / "edgekit.toml").write_text(f'schema = 1\n[store]\nurl = "{url}"\n')
    store = open_workspace(tmp_path).store
    assert store == url
    keep(record())
    assert not tuned_kernels(HERE, store), "it waits for another one"

    post_findings(Findings(records=(record(),)), findings_folder(url))
    assert KERNEL in tuned_kernels(HERE, store)
    assert (tmp_path / "team.db").exists()
