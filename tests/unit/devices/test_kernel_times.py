"""A profile: what a device says of its kernels is not trusted, and shares add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError
from edgekit.base.metrics import HostState
from edgekit.bundle.manifest_steps import LibraryStep
from edgekit.devices.base import BenchSamples, MemoryUse
from edgekit.devices.kernel_times import KernelTime, KernelTimes, TimedInference
from edgekit.devices.linux.agent_messages import parse_bench
from edgekit.devices.local.machine import KernelStopwatch
from edgekit.verbs.bench import summarise_samples

CALM = HostState(None, None, None, 4)
ANSWER = {
    "nanoseconds": [5, 6],
    "warmup": 1,
    "threads": 1,
    "memory_before": None,
    "memory_peak": None,
    "host_before": {"governor": None, "frequency_mhz": None, "load_average": None, "cores": 1},
    "load_nanoseconds": 7,
    "host_after": {"governor": None, "frequency_mhz": None, "load_average": None, "cores": 1},
    "preemptions": 0,
}


STEPS = {
    "conv": LibraryStep("conv", "kernel", ("block/conv", "block/relu"), "", 64),
    "region": LibraryStep("region", "region", ("head",), "ncnn", 64),
    "copy_out": LibraryStep("copy_out", "copy", ("out",), "", 64),
}


def profile_of(*kernels: KernelTime, inferences: int = 2) -> BenchSamples:
    times = KernelTimes(inferences, kernels)
    return BenchSamples((1,), 0, 1, MemoryUse(None, None), CALM, CALM, 0, times)


def test_the_slowest_kernel_comes_first_with_its_share() -> None:
    measured = profile_of(KernelTime("pad", 8, 250), KernelTime("conv", 2, 750))

    profile = summarise_samples(Path("b"), "local", "local", measured, "hardware").profile

    assert profile is not None
    assert [(k.name, k.calls, k.seconds) for k in profile.kernels] == [
        ("conv", 1, 750e-9),
        ("pad", 4, 250e-9),
    ]
    assert profile.seconds == pytest.approx(1e-6)


def test_rows_name_layers_and_what_runs_them() -> None:
    measured = profile_of(KernelTime("conv", 2, 750), KernelTime("region", 2, 100))

    profile = summarise_samples(Path("b"), "pi", "pi", measured, "hardware", STEPS).profile

    assert profile is not None
    assert [(k.layers, k.owner) for k in profile.kernels] == [
        (("block/conv", "block/relu"), ""),
        (("head",), "ncnn"),
    ]


def test_copies_and_calls_of_the_machine_are_one_sum() -> None:
    kernels = [KernelTime("conv", 2, 750), KernelTime("copy_out", 2, 30)]
    measured = profile_of(*kernels, KernelTime("vm.builtin.alloc_storage", 8, 5))

    profile = summarise_samples(Path("b"), "pi", "pi", measured, "hardware", STEPS).profile

    assert profile is not None
    assert [k.name for k in profile.kernels] == ["conv"]
    assert profile.copies == pytest.approx(35e-9)


def test_steps_are_judged_beside_the_best_of_the_run_unless_it_was_emulated() -> None:
    steps = {
        name: LibraryStep(name, "kernel", (name,), "", moved, operations, ())
        for name, moved, operations in (
            ("fast", 100, 4000),
            ("slow", 100, 2000),
            ("wide", 8000, 1000),
            ("copies", 64, None),
        )
    }
    measured = profile_of(*(KernelTime(name, 2, 2000) for name in steps))

    for measurer, expected in (("hardware", [None, 1.0, 0.5, 1.0]), ("emulator", [None] * 4)):
        profile = summarise_samples(Path("b"), "pi", "pi", measured, measurer, steps).profile
        assert profile is not None
        assert [kernel.of_best for kernel in profile.kernels] == expected


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1 << 60)), max_size=20))
def test_rows_add_up_to_the_median_whatever_was_measured(kernels: list[tuple[int, int]]) -> None:
    names = [*STEPS, *(f"k{i}" for i in range(len(kernels)))]
    measured = profile_of(*(KernelTime(n, *k) for n, k in zip(names, kernels, strict=False)))

    report = summarise_samples(Path("b"), "local", "local", measured, "hardware", STEPS)

    profile = report.profile
    assert profile is not None
    total = sum(kernel.seconds for kernel in profile.kernels) + profile.copies + profile.rest
    assert total == pytest.approx(report.median, abs=1e-9 + 1e-12 * profile.seconds)


def test_names_from_a_device_cannot_write_on_the_terminal() -> None:
    kernel = {"name": "conv\x1b[2J\u202e" + "x" * 1000, "calls": 1, "nanoseconds": 1}

    times = parse_bench(ANSWER | {"profiled": 1, "kernels": [kernel]}, "pi").kernels

    assert times is not None
    assert times.kernels[0].name.startswith("conv?[2J?xxx")
    assert len(times.kernels[0].name) == 200


@pytest.mark.parametrize(
    "change",
    [
        {"profiled": 0},
        {"profiled": 1 << 70},
        {"profiled": None},
        {"kernels": {"name": "conv"}},
        {"kernels": ["conv"]},
        {"kernels": [{"name": "conv", "calls": 1}]},
        {"kernels": [{"name": "", "calls": 1, "nanoseconds": 1}]},
        {"kernels": [{"name": "conv", "calls": 0, "nanoseconds": 1}]},
        {"kernels": [{"name": "conv", "calls": True, "nanoseconds": 1}]},
        {"kernels": [{"name": "conv", "calls": 1, "nanoseconds": -1}]},
        {"kernels": [{"name": "conv", "calls": 1, "nanoseconds": 1.5}]},
        {"kernels": [{"name": "conv", "calls": 1, "nanoseconds": 1}] * 20_001},
        {"timeline": [{"nanoseconds": 1, "kernels": [0], "starts": [-1], "durations": [1]}]},
        {"timeline": [{"nanoseconds": 1, "kernels": [], "starts": [0], "durations": [1]}]},
        {"timeline": [{"nanoseconds": 1, "kernels": [], "starts": []}]},
        {"timeline": [{"nanoseconds": 1, "kernels": [], "starts": [], "durations": []}] * 101},
    ],
)
def test_a_profile_that_makes_no_sense_is_told(change: dict[str, object]) -> None:
    said = ANSWER | {"profiled": 1, "kernels": []}
    assert parse_bench(said, "pi").kernels == KernelTimes(1, ())

    with pytest.raises(DeviceError, match="makes no sense") as caught:
        parse_bench(json.loads(json.dumps(said | change)), "pi")
    (fault,) = caught.value.details
    assert fault.startswith(next(iter(change)))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"nanoseconds": []}, "nanoseconds must be a list of samples, and is a list"),
        ({"nanoseconds": [1, -1]}, "nanoseconds[1] must be "),
        ({"nanoseconds": [1, 10**400]}, "nanoseconds[1] must be "),
        ({"host_before": {"governor": 1}}, "host_before."),
        ({"host_after": None}, "host_after must be a table, and is null"),
        ({"preemptions": "many"}, "preemptions must be "),
        ({"threads": True}, "threads must be "),
    ],
)
def test_a_measurement_that_makes_no_sense_names_the_key(
    change: dict[str, object], fault: str
) -> None:
    assert parse_bench(ANSWER, "pi").nanoseconds == (5, 6)

    with pytest.raises(DeviceError, match="makes no sense") as caught:
        parse_bench(json.loads(json.dumps(ANSWER | change)), "pi")

    assert caught.value.details[0].startswith(fault)


def test_a_timeline_holds_only_kernels_of_the_list() -> None:
    kernel = {"name": "conv", "calls": 1, "nanoseconds": 1}
    traced = {"nanoseconds": 9, "kernels": [0], "starts": [1], "durations": [7]}
    said = ANSWER | {"profiled": 1, "kernels": [kernel], "timeline": [traced]}

    times = parse_bench(said, "pi").kernels
    assert times is not None
    assert times.timeline == (TimedInference(9, (0,), (1,), (7,)),)

    with pytest.raises(DeviceError, match="makes no sense"):
        parse_bench(said | {"timeline": [traced | {"kernels": [1]}]}, "pi")


def test_calls_of_the_machine_are_traced_by_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100
    monkeypatch.setattr("time.perf_counter_ns", lambda: now)
    stopwatch = KernelStopwatch(traced=1)
    for _ in range(2):
        stopwatch.begin_inference()
        for name, before, passed in (
            ("outer", True, 10),
            ("inner", True, 30),
            ("inner", False, 5),
            ("outer", False, 0),
        ):
            now += 1
            stopwatch.called(None, name, before)
            now += passed
        stopwatch.end_inference()

    names = [str(one["name"]) for one in stopwatch.report()]
    (traced,) = stopwatch.timeline()

    assert traced == {
        "nanoseconds": 49,
        "kernels": [names.index("outer"), names.index("inner")],
        "starts": [1, 12],
        "durations": [48, 31],
    }


def test_a_kernel_is_not_charged_for_what_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr("time.perf_counter_ns", lambda: now)
    stopwatch = KernelStopwatch()
    for inner in (30, 30, 90):
        stopwatch.begin_inference()
        for name, before, passed in (
            ("outer", True, 10),
            ("inner", True, inner),
            ("inner", False, 5),
            ("outer", False, 0),
        ):
            stopwatch.called(None, name, before)
            now += passed

    told = {kernel["name"]: kernel for kernel in stopwatch.report()}

    assert told["inner"] == {"name": "inner", "calls": 3, "nanoseconds": 30}
    assert told["outer"] == {"name": "outer", "calls": 3, "nanoseconds": 15}


def test_a_kernel_that_some_inferences_leave_out_took_no_time_in_them() -> None:
    stopwatch = KernelStopwatch()
    for calls in (0, 0, 1):
        stopwatch.begin_inference()
        for _ in range(calls):
            stopwatch.called(None, "seldom", True)
            stopwatch.called(None, "seldom", False)

    assert stopwatch.report() == [{"name": "seldom", "calls": 1, "nanoseconds": 0}]
