"""`make gpu-check` on a machine without a GPU: each step says what is missing. With a stand-in for
the driver, the steps that only speak to it run to their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cuda_stand_in import VARIABLE, driver
from support.needs import needs
from support.source import ROOT

from benchmarks.gpu_steps import NEEDS, STEPS


def checked(folder: Path, *words: str, library: str) -> tuple[int, str, dict[str, Any]]:
    """Return the exit code, what is printed, and what each step became."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--out", str(folder), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests", VARIABLE: library},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    written = json.loads((folder / "gpu-check.json").read_text(encoding="utf-8"))
    assert (folder / "gpu-check.txt").read_text(encoding="utf-8") == done.stdout
    return done.returncode, done.stdout, {one["step"]: one for one in written["steps"]}


def test_the_steps_take_nine_minutes_together_and_need_what_can_be_looked_for() -> None:
    on_gpu = [step for step in STEPS if "gpu" in step.needs]
    assert sum(step.seconds for step in STEPS) <= 900
    assert len(on_gpu) == len(STEPS) - 2
    assert {need for step in STEPS for need in step.needs} == set(NEEDS)


def test_without_a_driver_every_step_on_the_gpu_says_so(tmp_path: Path) -> None:
    on_gpu = [step.name for step in STEPS if "gpu" in step.needs]
    code, told, steps = checked(
        tmp_path, "--only", ",".join(on_gpu), library="/nowhere/libcuda.so.1"
    )
    assert code == 3
    assert {one["verdict"] for one in steps.values()} == {"missing"}
    assert all(one["said"].startswith("no driver of NVIDIA's: ") for one in steps.values())
    assert told.endswith(f"0 done, 0 failed, {len(on_gpu)} missing\n")


@needs("x86-64")
def test_steps_that_speak_to_the_driver_run_with_a_stand_in(tmp_path: Path) -> None:
    code, told, steps = checked(
        tmp_path, "--only", "GPU,copies", "--seconds", "3000", library=str(driver())
    )
    assert code == 0, told
    assert steps["GPU"]["figures"] == {"name": "a CPU", "arch": "sm_75", "driver": "13.0"}
    assert "65536 KiB pinned to, GB/s" in steps["copies"]["figures"]


@needs("x86-64")
def test_a_step_that_fails_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_TEST_CUDA_FAULT", "2")
    code, _, steps = checked(
        tmp_path, "--only", "copies", "--seconds", "3000", library=str(driver())
    )
    assert code == 1
    assert steps["copies"]["verdict"] == "failed"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in steps["copies"]["said"]
