"""The agent is built by the board's compiler, once, and is small enough for a board."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.needs import needs

from edgekit.agent.build import AGENT, Agent, build_agent, build_runtime
from edgekit.base.errors import BuildError
from edgekit.base.events import Event, Events, StageProgress, StageStarted
from edgekit.cross.runtime import runtime_libraries
from edgekit.devices.elf import read_elf
from edgekit.profiles.toolchain import load_toolchain

MACHINE = os.uname().machine


def built(toolchain: str, arch: str) -> tuple[Agent, list[str]]:
    """The agent, and what was done for it."""
    stages: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted):
            stages.append(event.title)

    return build_agent(load_toolchain(toolchain), arch, events=Events(listen)), stages


def program_of(agent: Agent) -> Path:
    (program,) = (file for file in agent.files if file.executable)
    assert program.path.name == AGENT
    return program.path


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own that holds the agent for this machine."""
    folder = program_of(built("host", MACHINE)[0]).parent
    shutil.copytree(folder, tmp_path / "agents" / folder.name, symlinks=True)
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path))


def test_the_agent_for_this_machine_runs_and_is_built_once(kept: None) -> None:
    agent, stages = built("host", MACHINE)
    assert stages == []
    said = subprocess.run(
        [program_of(agent), "info"], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(said)["machine"] == MACHINE
    assert agent.size < 500_000


@pytest.mark.slow  # it compiles the whole agent
def test_a_damaged_agent_is_built_again_and_is_the_same(kept: None, tmp_path: Path) -> None:
    agent, _ = built("host", MACHINE)

    with program_of(agent).open("r+b") as program:
        program.write(b"damaged")
    heard: list[Event] = []
    mended = build_agent(load_toolchain("host"), MACHINE, events=Events(heard.append))
    stages = [event.title for event in heard if isinstance(event, StageStarted)]
    steps = [event for event in heard if isinstance(event, StageProgress)]

    assert mended == agent
    assert stages == [f"compile the agent for {MACHINE}"]
    assert 1 < max(step.done for step in steps) <= max(step.total or 0 for step in steps)
    assert str(tmp_path).encode() not in program_of(mended).read_bytes()


def test_the_agent_reads_what_sensors_hold_and_the_total_of_a_jetsons_table(
    tmp_path: Path,
) -> None:
    agent, _ = built("host", MACHINE)
    plain, table = tmp_path / "temp", tmp_path / "nvmap" / "iovmm" / "clients"
    table.parent.mkdir(parents=True)
    plain.write_text("48500\n")
    table.write_text("CLIENT PROCESS PID SIZE\nuser trt 17 27000K\ntotal \t      27756K\n")
    words = [program_of(agent), "watch", "--interval", "0.01", plain, table, tmp_path / "none"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        moment, *values = watching.stdout.readline().rstrip("\n").split("\t")
        watching.kill()
    assert moment.isdecimal()
    assert values == ["48500", "total 27756K", ""]


def test_an_architecture_that_tvm_has_no_runtime_for_is_refused() -> None:
    with pytest.raises(BuildError, match="no runtime for riscv64"):
        runtime_libraries("riscv64")


@needs("g++-aarch64")
@pytest.mark.slow
@pytest.mark.parametrize("make", [build_agent, build_runtime])
def test_the_agent_for_aarch64_is_made_of_the_pinned_packages(make: Callable[..., Agent]) -> None:
    agent = make(load_toolchain("aarch64-linux-gnu"), "aarch64")

    names = {file.path.name for file in agent.files}
    if make is build_runtime:
        assert agent.size < 8_000_000
        assert {"libtvm_runtime.so", "libtvm_ffi.so", "LICENSE.tvm", "NOTICE.tvm"} <= names
    else:
        assert agent.size < 500_000
        assert names == {AGENT}
    for file in agent.files:
        if file.executable or ".so" in file.path.name:
            needs = read_elf(file.path)
            assert (needs.machine, needs.bits) == ("aarch64", 64)
            assert set(needs.libraries) - names <= {
                "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
                "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-aarch64.so.1",
            }  # fmt: skip
    if shutil.which("file"):
        shown = subprocess.run(["file", str(agent.program)], capture_output=True, text=True).stdout
        assert "aarch64" in shown
