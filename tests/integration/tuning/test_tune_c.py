"""Tuning for a microcontroller: real firmwares on an emulated Cortex-M4, counted step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.int8_layers import Case, layer
from support.microcontrollers import emulated
from support.needs import MICROCONTROLLERS, needs
from support.tflite_models import write_model
from support.twins import edgekit, edgekit_json, twins_in

from edgekit.aot.ways import VERSION, StepWays, Way, way_from_json
from edgekit.backends.plan import OffloadPlan
from edgekit.base.errors import BuildError
from edgekit.base.events import SILENT
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_steps import measured_ways
from edgekit.devices.choice import Candidate
from edgekit.devices.device import Device
from edgekit.devices.local.device import LocalDevice
from edgekit.farm.web.tuning_page import sessions_part
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.store.database import close_store, open_store
from edgekit.store.lookup import best_records
from edgekit.store.tuning import records_of, sessions
from edgekit.store.tuning_results import session_curves
from edgekit.store.tuning_runs import TuningRecord
from edgekit.tuning import tune_c as tuning
from edgekit.tuning.recorder import Limits
from edgekit.tuning.tune_c import steps_of, tune_c
from edgekit.verbs.verify import verify

pytestmark = needs(*MICROCONTROLLERS)

BOARD = "mps2-an386"


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with twins_in(tmp_path_factory.mktemp("chips")):
        yield emulated(BOARD)


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> BuildRequest:
    source = write_model(
        tmp_path_factory.mktemp("model"), layer(Case("conv", 8, 8, (6, 7), (3, 3)))
    )
    board = load_board(BOARD)
    return BuildRequest(source, board, load_toolchain(board.toolchain))


def records(request: BuildRequest, url: str) -> list[TuningRecord]:
    store = open_store(url)
    try:
        (session, *_) = sessions(store)
        keys = {step.key for step in best_records(session.target, VERSION, url).values()}
        return [r for key in keys for r in records_of(store, key, session.target, VERSION)]
    finally:
        close_store(store)


@pytest.mark.slow
def test_ways_are_counted_once_and_later_builds_use_the_best(
    device: Device, request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'measurements.db'}"
    monkeypatch.setenv("EDGEKIT_STORE", url)
    devices = [Candidate("chip", lambda events: device)]
    first = tune_c(request_, devices, Limits(trials=2))
    assert first.failed == 0
    kept = records(request_, url)
    tried = {(r.workload.key, way_from_json(r.choice)) for r in kept}
    conv = max(first.steps, key=lambda step: step.own_us)
    ratios = {
        r.best_us / r.own_us
        for r in kept
        if r.workload.key == conv.key and r.best_us is not None and r.own_us
    }
    assert 1.0 in ratios, "its own way is counted beside"
    assert len(ratios) > 1, "other code takes another number of instructions"
    assert conv.best_us == pytest.approx(conv.own_us * min(ratios))

    again = tune_c(request_, devices, Limits(trials=1))
    assert again.known == len(tried)
    new = {(r.workload.key, way_from_json(r.choice)) for r in records(request_, url)} - tried
    assert len(new) == 1

    ways = measured_ways(request_.board, request_.toolchain, url)
    assert ways == {step.key: step.best for step in again.steps if step.best != step.own}
    assert measured_ways(load_board("mps2-an500"), request_.toolchain, url) == {}


def test_the_command_tunes_a_twin_and_the_store_has_the_session(
    device: Device, request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{tmp_path / 'measurements.db'}")
    model, board = str(request_.source.path), ("--board", BOARD)
    report = edgekit_json("tune", model, *board, "--twin", "--trials", "1")
    assert report["unit"] == "instructions"
    assert report["failed"] == 0
    assert report["known"] == 0
    assert report["best_us"] <= report["own_us"]
    (session,) = (found["session"] for found in edgekit_json("results", "tuning")["sessions"])
    assert session["id"] == report["session"]
    assert session["state"] == "done"
    assert (session["measured_by"], session["unit"]) == ("emulator", "instructions")
    (listed,) = session_curves(1)
    assert f"{round(listed.curve[-1].own_us * 1e3):,} instructions" in sessions_part([listed])
    shown = edgekit("results", "tuning", "latest").stdout
    assert "instructions" in shown
    assert re.search(r"[0-9] [mµn]?s\b", shown) is None, "an emulator's instructions are no time"

    edgekit_json("build", model, *board, "-o", str(tmp_path / "bundle"))
    bench = edgekit_json("bench", str(tmp_path / "bundle"), "--twin", "--runs", "3")
    assert bench["measured_by"] == "emulator"
    run = edgekit_json("results", "show", "latest")
    assert (run["measured_by"], run["unit"]) == ("emulator", "instructions")
    assert run["median"] == bench["counted"]["median"]
    (advice,) = edgekit_json("recommend", model, *board)["boards"]
    assert [o["known"]["unit"] for o in advice["options"] if o["known"]] == ["instructions"]
    assert "--measure on the board itself decides" in advice["verdict"]


def test_what_was_measured_decides_and_gives_the_same_numbers(
    device: Device, request_: BuildRequest, tmp_path: Path
) -> None:
    asked = replace(request_, offload=OffloadPlan(("cmsis-nn",)))
    steps = steps_of(asked, tmp_path, SILENT)
    conv = next(step for step in steps if any(way.maker == "cmsis-nn" for way in step.others))
    ways: Mapping[str, Way] = {conv.key: Way("cmsis-nn")}
    bundle = build(replace(asked, ways=ways), tmp_path / "out").bundle
    c = bundle.manifest.bare_metal
    assert c is not None
    made = {step.name: step for step in c.steps}[conv.step]
    assert made.maker == "cmsis-nn"
    assert "measured to be best" in made.note
    assert verify(bundle, device).passed


def test_a_way_with_wrong_numbers_is_found_and_left_out(
    monkeypatch: pytest.MonkeyPatch, request_: BuildRequest, tmp_path: Path
) -> None:
    own, others = Way("edgekit"), tuple(Way("tvm", f"registers {n}") for n in range(3))
    steps = tuple(StepWays(f"s{n}", f"k{n}", f"s{n}", own, others) for n in range(5))
    wrong, broken = ("k1", others[0]), ("k3", others[2])

    def counts(runner: object, ways: Mapping[str, Way], device: object) -> dict[str, float]:
        if wrong in ways.items():
            raise tuning.WrongNumbers("other numbers", hint="")
        if broken in ways.items():
            raise BuildError("it does not fit", hint="")
        return {step.key: 2.0 if step.key in ways else 4.0 for step in steps}

    monkeypatch.setattr(tuning._FirmwareRunner, "_counts", counts)
    monkeypatch.setattr(tuning, "steps_of", lambda *given: steps)
    url = f"sqlite:///{tmp_path / 'measurements.db'}"
    monkeypatch.setenv("EDGEKIT_STORE", url)
    monkeypatch.setattr(tuning, "unit_of", lambda device: "instructions")
    devices = [Candidate("chip", lambda events: LocalDevice())]  # nothing runs on it
    found = tune_c(request_, devices, Limits())
    kept = records(request_, url)
    errors = {(r.workload.key, way_from_json(r.choice)): r.error for r in kept if r.error}
    assert errors == {wrong: "numbers", broken: "compile"}
    assert {step.key: step.best_us for step in found.steps} == {f"k{n}": 2.0 for n in range(5)}
    assert found.own_us == 20.0
    assert found.failed == 2
