"""Statistics of samples, against numpy's; what makes a measurement doubtful is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import UsageError
from edgekit.base.json_text import json_text
from edgekit.base.metrics import HostState, read_host_state
from edgekit.devices.base import BenchPlan, BenchSamples, MemoryUse
from edgekit.verbs.bench import plan_bench, summarise_samples

CALM = HostState("performance", 2000.0, 0.1, 4)
STEADY = BenchSamples(
    nanoseconds=(1_000_000,) * 200,
    warmup=10,
    threads=1,
    memory=MemoryUse(1000, 5000),
    host_before=CALM,
    host_after=CALM,
    preemptions=0,
)


def notes(samples: BenchSamples) -> str:
    return " / ".join(summarise_samples(Path("b"), "local", "local", samples, "hardware").notes)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=300))
def test_statistics_are_those_of_numpy(nanoseconds: list[int]) -> None:
    measured = replace(STEADY, nanoseconds=tuple(nanoseconds))
    report = summarise_samples(Path("b"), "local", "local", measured, "hardware")
    seconds = np.array(nanoseconds) / 1e9

    found = [report.median, report.p90, report.p99, report.minimum, report.mean]
    expected = [*np.percentile(seconds, [50, 90, 99]), seconds.min(), seconds.mean()]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    deviation = np.std(seconds, ddof=1) if len(seconds) > 1 else 0.0
    np.testing.assert_allclose(report.stdev, deviation, rtol=1e-6, atol=1e-12)
    assert report.throughput == pytest.approx(1 / seconds.mean())
    assert (report.runs, len(report.samples)) == (len(nanoseconds), len(nanoseconds))


def test_a_calm_machine_needs_no_notes() -> None:
    assert notes(STEADY) == ""


def test_a_region_that_did_not_run_on_its_gpu_is_said() -> None:
    told = replace(STEADY, told=("on a GPU",), warned=("on the CPU: no driver",))

    assert notes(told) == "on the CPU: no driver / on a GPU"


def test_what_disturbs_a_measurement_is_said() -> None:
    busy = replace(STEADY, host_before=replace(CALM, load_average=3.9))
    saving = replace(STEADY, host_before=replace(CALM, governor="powersave"))
    spread = replace(STEADY, nanoseconds=(1_000_000,) * 150 + (2_000_000,) * 50)

    assert "load average 3.9 on 4 cores" in notes(busy)
    assert "governor powersave" in notes(saving)
    assert "took 2 times the median" in notes(spread)
    assert "9 threads shared 4 cores" in notes(replace(STEADY, threads=9))
    assert "p99 of 5 runs" in notes(replace(STEADY, nanoseconds=(1_000_000,) * 5))


def test_what_cannot_be_read_is_null_and_never_zero() -> None:
    blind = HostState(None, None, None, 4)
    measured = replace(
        STEADY, host_before=blind, host_after=blind, memory=MemoryUse(None, None), preemptions=None
    )

    report = summarise_samples(Path("b"), "local", "local", measured, "hardware")

    assert report.governor is None and report.frequency_mhz is None
    assert report.memory.model_peak is None
    assert '"frequency_mhz": null' in json_text(report)


def test_memory_of_the_model_is_what_it_added() -> None:
    report = summarise_samples(Path("b"), "local", "local", STEADY, "hardware")

    assert (report.memory.process_peak, report.memory.model_peak) == (5000, 4000)


def test_runs_and_seconds_set_each_others_default_aside() -> None:
    assert plan_bench(None, None, 10, None) == BenchPlan(sensors=True)
    assert plan_bench(5, None, 0, 2) == BenchPlan(0, 5, 0.0, 2, sensors=True)
    assert plan_bench(None, 7.0, 10, None) == BenchPlan(10, 10, 7.0, None, sensors=True)
    assert plan_bench(5, 7.0, 10, None) == BenchPlan(10, 5, 7.0, None, sensors=True)


def test_governor_and_frequency_are_read_where_the_kernel_tells(tmp_path: Path) -> None:
    for cpu, (governor, kilohertz) in enumerate((("ondemand", 1_500_000), ("powersave", 500_000))):
        folder = tmp_path / f"cpu{cpu}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
        (folder / "scaling_cur_freq").write_text(f"{kilohertz}\n")

    state = read_host_state(2, tmp_path, tmp_path / "cpuinfo")

    assert (state.governor, state.frequency_mhz) == ("ondemand,powersave", 1000.0)


def test_without_cpufreq_the_frequency_is_that_of_cpuinfo_or_unknown(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"

    assert read_host_state(2, tmp_path, cpuinfo).frequency_mhz is None
    cpuinfo.write_text(
        "processor\t: 0\ncpu MHz\t\t: 2600.5\n\nprocessor\t: 1\ncpu MHz\t\t: 2599.5\n"
    )
    assert read_host_state(2, tmp_path, cpuinfo).frequency_mhz == 2600.0
    assert read_host_state(2, tmp_path, cpuinfo).governor is None


def test_more_runs_than_are_kept_are_refused_and_not_cut_short() -> None:
    assert plan_bench(100_000, None, 10, None).runs == 100_000
    with pytest.raises(UsageError, match="100,001 runs"):
        plan_bench(100_001, None, 10, None)
