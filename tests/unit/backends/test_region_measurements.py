"""What was measured is found again, and only where it still holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.backends.measurements import Measured, keep_measurement, read_measurements

RECORD = Measured(
    region="edgekit_ncnn_0123456789abcdef",
    board="rpi4",
    backend="ncnn",
    version="1.0",
    library_us=80.0,
    tvm_us=100.0,
    agrees=True,
    device="kitchen",
    measured_at="2026-01-02T03:04:05.000000Z",
    measured_by="hardware",
)


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("EDGEKIT_STORE", "")
    monkeypatch.chdir(tmp_path)


def test_a_measurement_counts_for_its_board_and_library_version_only() -> None:
    keep_measurement(RECORD)
    assert read_measurements("rpi4", {"ncnn": "1.0"}) == {RECORD.region: RECORD}
    assert read_measurements("rpi5", {"ncnn": "1.0"}) == {}
    assert read_measurements("rpi4", {"ncnn": "1.1"}) == {}
    assert read_measurements("rpi4", {"acl": "1.0"}) == {}


def test_a_newer_measurement_takes_the_place_of_the_older_and_of_no_other() -> None:
    keep_measurement(RECORD)
    keep_measurement(replace(RECORD, board="rpi5"))
    keep_measurement(replace(RECORD, library_us=90.0))
    assert read_measurements("rpi4", {"ncnn": "1.0"})[RECORD.region].library_us == 90.0
    assert read_measurements("rpi5", {"ncnn": "1.0"})[RECORD.region].library_us == 80.0


@pytest.mark.parametrize(
    ("record", "pays", "said"),
    [
        (RECORD, True, "80 µs, in TVM 100 µs"),
        (replace(RECORD, library_us=100.0), False, "in TVM"),
        (replace(RECORD, library_us=99.5), False, "in TVM"),
        (replace(RECORD, agrees=False), False, "differ"),
    ],
)
def test_a_region_pays_where_it_is_faster_and_right(
    record: Measured, pays: bool, said: str
) -> None:
    assert record.verdict.pays == pays
    assert said in record.verdict.reason
    assert "kitchen" in record.verdict.reason


def test_what_is_measured_with_the_store_off_is_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "off")
    keep_measurement(RECORD)
    assert read_measurements("rpi4", {"ncnn": "1.0"}) == {}
    assert not list(tmp_path.rglob("*.json"))
