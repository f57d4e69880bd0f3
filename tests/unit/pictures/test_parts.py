"""The parts of a page as data: what they show, and which command makes what they lack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bundles import make_bundle
from support.stores import A_PROFILE, a_run

from edgekit.base.roof import Limits
from edgekit.bundle.manifest import Manifest
from edgekit.bundle.manifest_bare_metal import BufferEntry
from edgekit.bundle.manifest_steps import Arena, LibraryStep
from edgekit.pictures.graph import graph_part
from edgekit.pictures.history import energy_part, grouped, history_part
from edgekit.pictures.latencies import latencies_part
from edgekit.pictures.memory import alive_bytes, memory_part
from edgekit.pictures.parts import Part
from edgekit.pictures.steps import roofline_part, shares_part, timeline_part
from edgekit.pictures.tuning import tuning_part
from edgekit.store.runs import Conditions
from edgekit.store.tuning_results import SessionCurve
from edgekit.store.tuning_runs import TuningProgress, TuningSession

CONV, REGION, COPY = A_PROFILE.steps
PROFILED = a_run(1, 0.008, profile=A_PROFILE)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return make_bundle(tmp_path / "bundle").manifest


def rows(part: Part, chart: int = 0, layer: int | None = None) -> list[dict[str, Any]]:
    spec = part.charts[chart].spec
    return list((spec if layer is None else spec["layer"][layer])["data"]["values"])


@pytest.mark.parametrize(
    ("part", "command"),
    [
        (graph_part(None, None), "edgekit bench BUNDLE --profile"),
        (shares_part(None), "edgekit bench BUNDLE --profile"),
        (timeline_part(a_run()), "edgekit bench BUNDLE --profile"),
        (roofline_part(None), "edgekit bench BUNDLE --profile"),
        (latencies_part(None), "edgekit bench BUNDLE"),
        (memory_part(None), "edgekit build MODEL"),
        (history_part(()), "edgekit bench BUNDLE"),
        (energy_part(()), "edgekit bench BUNDLE"),
        (tuning_part(()), "edgekit tune MODEL"),
    ],
    ids=lambda value: value.name if isinstance(value, Part) else "",
)
def test_a_part_without_data_names_the_command_that_makes_them(part: Part, command: str) -> None:
    assert f"`{command}`" in part.missing
    assert not part.charts
    assert part.graph is None


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5000))
def test_every_inference_is_in_one_bar_and_the_slowest_and_fastest_are_points(
    samples: list[int],
) -> None:
    part = latencies_part(a_run(samples=tuple(samples)))

    assert sum(bar["runs"] for bar in rows(part, 0, 0)) == len(samples)
    points = rows(part, 1)
    assert len(points) <= 2000
    assert [point["run"] for point in points] == sorted({point["run"] for point in points})
    shown = {samples[point["run"] - 1] for point in points}
    assert {min(samples), max(samples)} <= shown


def test_steps_have_layers_owners_times_and_shares() -> None:
    slowest, region = rows(shares_part(PROFILED))

    assert slowest == {
        "layer": "1. conv, relu", "owner": "edgekit", "time": 4.0, "words": "4 ms",
        "share": "50.0 %",
    }  # fmt: skip
    assert (region["owner"], region["share"]) == ("ncnn", "25.0 %")
    events = rows(timeline_part(PROFILED))
    assert [(event["start"], event["end"]) for event in events] == [(1.0, 5.0), (5.0, 7.0)]


def test_a_roof_is_what_the_run_reached() -> None:
    part = roofline_part(PROFILED)
    roof, points = rows(part, 0, 0), rows(part, 0, 1)

    # 8000 operations in 4 ms, and 4000 bytes in 2 ms: both are the most of the run.
    assert max(point["y"] for point in roof) == 8000 / 4_000_000
    assert [point["reached"] for point in points] == ["100 %", "100 %"]
    slower = replace(REGION, time=4_000_000)
    run = a_run(profile=replace(A_PROFILE, steps=(CONV, slower, REGION)))
    assert [point["reached"] for point in rows(roofline_part(run), 0, 1)][1] == "50.0 %"


def test_what_the_hardware_can_do_is_drawn_where_it_was_measured() -> None:
    limits = Limits(2, float32=4e9, integers=16e9, bytes=2e9)
    part = roofline_part(a_run(1, 0.008, profile=replace(A_PROFILE, limits=limits)))
    hardware = rows(part, 0, 0)

    assert {point["type"] for point in hardware} == {"float32", "small integers"}
    for point in hardware:
        most = 4 if point["type"] == "float32" else 16
        assert point["y"] == pytest.approx(min(most, 2 * point["x"]))
    assert "4 GOP/s in float32" in part.text
    assert len(part.charts[0].spec["layer"]) == 3
    assert len(roofline_part(PROFILED).charts[0].spec["layer"]) == 2


def test_what_is_too_short_and_what_an_emulator_measured_has_no_roof() -> None:
    short = replace(REGION, time=999, reads=())
    run = a_run(profile=replace(A_PROFILE, steps=(CONV, short), timeline=()))
    assert [point["layer"] for point in rows(roofline_part(run), 0, 1)] == ["conv, relu"]
    only = a_run(profile=replace(A_PROFILE, steps=(short,), timeline=()))
    assert "less than a microsecond" in roofline_part(only).missing
    assert "an emulator" in roofline_part(replace(PROFILED, measured_by="emulator")).missing


def test_counts_of_an_emulated_core_are_no_rate_and_no_latency() -> None:
    run = a_run(unit="instructions", samples=(), measured_by="emulator", profile=A_PROFILE)

    assert "instructions" in roofline_part(run).missing
    assert "instructions" in latencies_part(run).missing
    assert rows(shares_part(run))[0]["words"] == "4,000,000 instructions emulated"


def test_a_graph_of_a_run_shows_time_share_and_memory(manifest: Manifest) -> None:
    steps = tuple(
        LibraryStep(s.name, "kernel", s.layers, s.owner, s.bytes, s.operations, s.reads)
        for s in A_PROFILE.steps
    )
    arena = Arena(96, 96, (BufferEntry("x", "tensor", 0, 64, 0, 1),))
    part = graph_part(replace(manifest, steps=steps, arena=arena), PROFILED)

    assert part.graph is not None
    conv, region, copy = part.graph.nodes
    assert (conv.title, conv.lines) == ("conv, relu", ("4 ms · 50.0 %", "edgekit"))
    assert dict(conv.facts)["alive in the arena"] == "64 bytes"
    assert (conv.share, region.share, copy.share) == (0.5, 0.25, 0.0)
    assert {(edge.start, edge.end) for edge in part.graph.edges} == {(0, 1), (0, 2), (1, 2)}
    assert part.graph.owners == ("edgekit", "ncnn")
    assert conv.y < region.y < copy.y


def test_a_bundle_whose_steps_do_not_say_what_they_read_has_no_graph(manifest: Manifest) -> None:
    unknown = replace(manifest, steps=(LibraryStep("conv", "kernel", ("conv",), "", 64),))

    assert "`edgekit build MODEL`" in graph_part(unknown, None).missing


def test_memory_in_use_counts_a_place_once() -> None:
    buffers = (
        BufferEntry("a", "tensor", 0, 64, 0, 1),
        BufferEntry("view of a", "tensor", 0, 32, 1, 1),
        BufferEntry("b", "tensor", 64, 32, 1, 2),
    )

    assert alive_bytes(buffers, 4) == (64, 96, 32, 0)


def test_runs_of_other_measurers_and_units_have_their_own_histories() -> None:
    other = a_run(3, measured_by="emulator")
    runs = (a_run(2, joules=0.004), other, a_run(1))
    histories = grouped(runs)

    assert sorted(len(runs) for runs in histories) == [1, 2]
    part = history_part(histories)
    assert len(part.charts) == 2
    assert part.table is not None
    assert len(part.table.rows) == 3
    warm = replace(runs[0], conditions=Conditions(threads=1, temperature_c=61.0))
    assert [row["value"] for row in rows(energy_part(grouped((warm,))))] == [4.0]
    assert [row["value"] for row in rows(energy_part(grouped((warm,))), 1)] == [61.0]


def _curve(unit: Any) -> SessionCurve:
    times = ("2026-03-01T12:00:00Z", "2026-03-01T12:01:00Z")
    session = TuningSession(
        *("ab" * 16, "net", "cd" * 32, "rpi4", "{}", ("kitchen",), "desk", "1", times[0]),
        *(times[1], None, "running", 3, 64, None, "hardware", unit),
    )
    points = (TuningProgress("ab" * 16, times[0], 1, 0, 4000.0, 4000.0),)
    return SessionCurve(session, (*points, TuningProgress("ab" * 16, times[1], 9, 1, 4000.0, 2e3)))


@pytest.mark.parametrize(("unit", "last"), [("seconds", 2.0), ("instructions", 2e6)])
def test_a_search_has_a_curve_in_its_unit(unit: str, last: float) -> None:
    part = tuning_part((_curve(unit),))

    found = [row for row in rows(part) if row["line"] == "best so far"]
    assert [row["minutes"] for row in found] == [0, 1]
    assert found[-1]["time"] == last
    assert part.table is not None
    assert part.table.rows[0][-1] == "2x"
