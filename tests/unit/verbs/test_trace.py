"""Timelines: every event of the Trace Event Format, nested in the inference that it belongs to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError, StorageError
from edgekit.bundle.manifest_steps import LibraryStep
from edgekit.devices.kernel_times import KernelTime, KernelTimes, TimedInference
from edgekit.verbs.bench import plan_bench
from edgekit.verbs.trace import write_trace

STEPS = {"conv": LibraryStep("conv", "region", ("block/conv", "block/relu"), "ncnn", 64)}
KERNELS = (KernelTime("conv", 2, 7), KernelTime("vm.builtin.copy", 2, 1))


def events(file: Path, *timeline: TimedInference) -> list[dict[str, Any]]:
    times = KernelTimes(2, KERNELS, timeline)
    write_trace(file, "net on pi", times, STEPS, "hardware")
    document = json.loads(file.read_text())
    assert document["otherData"]["measured_by"] == "hardware"
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_an_event_says_layers_owner_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "made" / "t.json"

    inference, conv, call = events(file, TimedInference(9000, (0, 1), (1000, 8500), (7000, 250)))

    assert (inference["name"], inference["ts"], inference["dur"]) == ("inference", 0, 9)
    assert (conv["name"], conv["cat"], conv["ts"], conv["dur"]) == (
        "block/conv, block/relu", "region", 1, 7,
    )  # fmt: skip
    assert conv["args"] == {
        "step": "conv", "layer": "block/conv, block/relu", "owner": "ncnn", "bytes": 64,
    }  # fmt: skip
    assert (call["name"], call["dur"]) == ("vm.builtin.copy", 0.25)


@given(runs=st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1 << 40))), min_size=1))
def test_calls_lie_in_their_inference_and_add_up(
    runs: list[list[tuple[int, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    timeline = []
    for calls in runs:
        now, starts = 0, []
        for pause, taken in calls:
            starts.append(now + pause)
            now += pause + taken
        durations = tuple(taken for _, taken in calls)
        timeline.append(TimedInference(now, (0,) * len(calls), tuple(starts), durations))

    found = events(tmp_path_factory.getbasetemp() / "t.json", *timeline)

    end = 0.0
    inferences = [event for event in found if event["cat"] == "inference"]
    assert len(inferences) == len(runs)
    for inference, calls in zip(inferences, runs, strict=True):
        assert inference["ts"] == pytest.approx(end)
        end = inference["ts"] + inference["dur"]
        at = found.index(inference) + 1
        own = found[at : at + len(calls)]
        total = sum(event["dur"] for event in own)
        assert total == pytest.approx(sum(taken for _, taken in calls) / 1000)
        for event in own:
            assert inference["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= end + 1e-6 * max(end, 1)


def test_a_device_without_times_of_steps_is_told(tmp_path: Path) -> None:
    for times in (None, KernelTimes(1, KERNELS)):
        with pytest.raises(DeviceError, match="no timeline to write"):
            write_trace(tmp_path / "t.json", "net on twin", times, STEPS, "emulator")
    assert not list(tmp_path.iterdir())


def test_a_file_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError):
        events(tmp_path / "file" / "t.json", TimedInference(1, (), (), ()))


def test_a_trace_profiles_and_takes_no_more_than_five_inferences() -> None:
    assert plan_bench(1, 0, 0, None).traced == 0
    plans = [plan_bench(1, 0, 0, None, profiled, traced=True) for profiled in (0, 3, 50)]
    assert [(plan.profiled, plan.traced) for plan in plans] == [(10, 5), (3, 3), (50, 5)]
