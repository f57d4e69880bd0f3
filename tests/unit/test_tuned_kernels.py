"""Measured choices are found again, and only where they still hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.cpu import Target
from edgekit.errors import StorageError
from edgekit.schedules.choices import VERSION, GenericChoice, ProductChoice
from edgekit.schedules.tiles import Tile
from edgekit.tuning.store import (
    TunedKernel,
    keep_tuned_kernel,
    measured_choices,
    tuned_kernels,
    tuned_kernels_file,
)

HERE = Target("llvm", "x86_64-linux-gnu", "skylake-avx512", (), 2)
THERE = replace(HERE, cpu="haswell")
RECORD = TunedKernel(
    kernel="product-0123",
    target=HERE.as_json(),
    choice=ProductChoice(Tile(1, 6, 32), unrolled=8),
    best_us=80.0,
    own_us=100.0,
    words="convolution",
    device="kitchen",
    when="2026-01-02T03:04:05+00:00",
)


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_a_choice_counts_for_its_cpu_only() -> None:
    keep_tuned_kernel(RECORD)

    assert tuned_kernels(HERE) == {RECORD.kernel: RECORD}
    assert measured_choices(HERE).of_kernel == {RECORD.kernel: RECORD.choice}
    assert not tuned_kernels(THERE)
    assert not measured_choices(replace(HERE, cores=4)).of_kernel


def test_a_choice_of_other_schedules_is_over() -> None:
    keep_tuned_kernel(replace(RECORD, version=VERSION + 1))

    assert not tuned_kernels(HERE)


def test_a_kernel_for_which_nothing_was_better_is_known_and_changes_nothing() -> None:
    keep_tuned_kernel(replace(RECORD, choice=GenericChoice()))

    assert RECORD.kernel in tuned_kernels(HERE)
    assert not measured_choices(HERE).of_kernel


def test_a_newer_measurement_takes_the_place_of_the_older_and_of_no_other() -> None:
    keep_tuned_kernel(RECORD)
    keep_tuned_kernel(replace(RECORD, target=THERE.as_json()))
    keep_tuned_kernel(replace(RECORD, best_us=70.0))

    assert tuned_kernels(HERE)[RECORD.kernel].best_us == 70.0
    assert tuned_kernels(THERE)[RECORD.kernel].best_us == 80.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"format": 2, "kernels": []}',
        '{"format": 1, "kernels": [3]}',
        '{"format": 1, "kernels": [{"version": 1}]}',
        "[" * 100_000,
        "\xff",
    ],
)
def test_a_damaged_file_is_told_of_and_left_alone(text: str) -> None:
    file = tuned_kernels_file()
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="latin-1")

    with pytest.raises(StorageError, match="can't be used"):
        measured_choices(HERE)
    with pytest.raises(StorageError, match="can't be used"):
        keep_tuned_kernel(RECORD)
    assert file.read_text(encoding="latin-1") == text


@pytest.mark.parametrize(
    "change", [{"choice": {"family": "product"}}, {"best_us": "fast"}, {"kernel": 3}]
)
def test_a_record_with_other_fields_is_damage(change: dict[str, object]) -> None:
    keep_tuned_kernel(RECORD)
    file = tuned_kernels_file()
    document = json.loads(file.read_text(encoding="utf-8"))
    document["kernels"][0].update(change)
    file.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(StorageError):
        tuned_kernels(HERE)
