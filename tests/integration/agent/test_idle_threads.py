"""OpenMP's threads of a region sleep soon when there is nothing to do: libgomp itself says so."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.building import environment, request_for, write_model
from support.ncnn_lab import lab
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS

from edgekit.agent.build import build_agent
from edgekit.backends.plan import OffloadPlan
from edgekit.building.build import build
from edgekit.profiles.toolchain import load_toolchain

pytestmark = needs("ncnn")

LOAD_IN_WORKER = """
import sys
from edgekit.devices.local import worker
def load_instead(fill):
    worker.Program(sys.argv[1], 1, print)
    raise SystemExit
worker.read_frame = load_instead
worker.main("")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab()
    folder = tmp_path_factory.mktemp("offloaded")
    request = request_for(write_model(folder / "tiny.onnx"))
    plan = OffloadPlan(("ncnn",), rates=EVERYTHING_PAYS)
    build(dataclasses.replace(request, offload=plan), folder / "bundle", isolated=False)
    return folder / "bundle" / "model.so"


def settings(who: str, library: Path, given: dict[str, str]) -> str:
    """What libgomp was started with, in its own words."""
    command = {
        "worker": [sys.executable, "-c", LOAD_IN_WORKER, str(library)],
        "agent": [str(agent()), "run", str(library), "no-such-sample"],
    }[who]
    said = {
        name: value
        for name, value in environment().items()
        if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    shown = {**said, "OMP_DISPLAY_ENV": "verbose", **given}
    return subprocess.run(command, capture_output=True, text=True, env=shown, check=False).stderr


def agent() -> Path:
    return build_agent(load_toolchain("host"), os.uname().machine).program


@pytest.mark.parametrize("who", ["worker", "agent"])
def test_idle_threads_sleep_soon(who: str, library: Path) -> None:
    said = settings(who, library, {})

    assert "GOMP_SPINCOUNT = '1000'" in said
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in said


@pytest.mark.parametrize("who", ["worker", "agent"])
def test_what_the_user_says_about_idle_threads_stays(who: str, library: Path) -> None:
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in settings(who, library, {"OMP_WAIT_POLICY": "active"})
    assert "GOMP_SPINCOUNT = '77'" in settings(who, library, {"GOMP_SPINCOUNT": "77"})
