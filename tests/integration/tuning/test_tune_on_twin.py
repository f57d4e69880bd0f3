"""A search on an emulated Raspberry Pi 4: another architecture, and times that are no board's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.building import request_for, write_model
from support.needs import TWIN, needs
from support.twins import twins_in

from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import tuned_kernels
from edgekit.compiler.schedules.choices import EXACTLY
from edgekit.devices.emulated import emulated_device
from edgekit.store.database import close_store, open_store
from edgekit.store.tuning import all_records
from edgekit.tuning.tune import Effort, quick_tune, tune
from edgekit.tuning.tune_devices import DeviceSelection, pool_for, pool_of

BOARD = "rpi4"
FEW = 6

pytestmark = [
    pytest.mark.slow,
    needs(*TWIN),
]


@pytest.fixture(scope="module", autouse=True)
def twins(twin_cache: Path) -> Iterator[None]:
    """The test that comes first starts the twin."""
    with twins_in(twin_cache):
        yield


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildRequest:
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    return request_for(write_model(tmp_path / "model.onnx"), BOARD)


def test_what_a_twin_measured_decides_for_twins_alone(request_: BuildRequest) -> None:
    pool = pool_for(request_.board, DeviceSelection(twin=True), {}, 120.0, "tuning")

    report = tune(request_, pool, Effort(trials=FEW))

    assert report.measured_by == "emulator"
    assert report.devices == (BOARD,)
    assert report.trials == FEW
    measured = [kernel for kernel in report.kernels if kernel.own_us is not None]
    assert measured
    store = open_store()
    kept = list(all_records(store))
    close_store(store)
    assert {record.device for record in kept if record.error is None} == {BOARD}
    target = request_.board.target
    found = {key.partition(EXACTLY)[0] for key in tuned_kernels(target, twin=True)}
    assert {kernel.key.partition(EXACTLY)[0] for kernel in measured} <= found
    assert tuned_kernels(target) == {}


def test_a_twin_that_was_added_as_a_board_tunes_for_twins_alone(request_: BuildRequest) -> None:
    twin = emulated_device(BOARD, request_.board, 120.0)
    by_hand = replace(twin, is_emulated=False)  # what a device at an address is known as

    assert by_hand.ask_measurer() == "emulator"
    report = tune(request_, pool_of(request_.board, [by_hand]), Effort(trials=FEW))
    _, quick = quick_tune(request_, by_hand, 1.0)

    assert report.measured_by == "emulator"
    assert quick is None or quick.measured_by == "emulator"
    target = request_.board.target
    assert tuned_kernels(target, twin=True)
    assert tuned_kernels(target) == {}
