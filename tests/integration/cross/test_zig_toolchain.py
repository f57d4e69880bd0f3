"""A toolchain out of a Python package, for boards whose system is older than this one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.building import write_model
from support.needs import TWIN, needs
from support.source import ROOT
from support.twins import edgekit_command, edgekit_json, twins_in

from edgekit.agent.build import build_agent, build_runtime
from edgekit.devices.elf import read_elf
from edgekit.profiles.board import board_names, load_board
from edgekit.profiles.toolchain import load_toolchain

ZIG = "zig-aarch64-linux-gnu"
TRAINING = ROOT / "examples" / "digits" / "train.py"
OLDEST = (2, 28)
"""Debian 10's glibc, for which the profile asks."""


def test_every_64_bit_arm_board_has_a_spelling_that_zig_knows() -> None:
    zig = load_toolchain(ZIG)
    boards = [load_board(name) for name in board_names()]
    flags = {
        flag
        for board in boards
        if board.kind == "linux" and board.cpu.arch == "aarch64"
        for flag in board.cpu.compile_flags
    }

    assert flags
    assert not [flag for flag in flags if flag not in zig.cpu_flags]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, twin_cache: Path) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("zig")
    with twins_in(twin_cache), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        yield folder


@needs("zig", *TWIN)
@pytest.mark.slow
def test_what_zig_builds_runs_on_older_systems_than_what_the_cross_compiler_builds(
    place: Path,
) -> None:
    newest = {}
    for name in (ZIG, "aarch64-linux-gnu"):
        program = build_agent(load_toolchain(name), "aarch64").program
        newest[name] = read_elf(program).versions
        assert read_elf(program).machine == "aarch64"

    assert newest[ZIG]["GLIBC"] <= OLDEST < newest["aarch64-linux-gnu"]["GLIBC"]
    assert "GLIBCXX" not in newest[ZIG], "Zig's own C++ library is linked in"


@needs("zig", *TWIN)
@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny.onnx", "digits.onnx"])
def test_a_model_and_an_agent_of_zigs_making_run_on_the_twin(place: Path, model: str) -> None:
    if model == "tiny.onnx":
        write_model(place / model)
    else:
        shutil.copy(TRAINING, place)
        subprocess.run([sys.executable, TRAINING.name], cwd=place, check=True, timeout=300)

    report = edgekit_json("deploy", model, "--board", "rpi4", "--twin", "--toolchain", ZIG)

    assert report["verification"]["passed"] is True
    manifest = json.loads(next(place.rglob("manifest.json")).read_text())
    assert manifest["toolchain"]["name"] == ZIG
    for library in place.rglob("*.so"):
        assert read_elf(library).versions.get("GLIBC", ()) <= OLDEST


@needs("zig", *TWIN)
@pytest.mark.slow
def test_an_error_in_tvm_is_a_sentence_and_no_crash(place: Path) -> None:
    """TVM's libraries are of another C++ library than a program of Zig's making."""
    runtime = build_runtime(load_toolchain(ZIG), "aarch64").program
    packed = subprocess.run(
        ["tar", "-C", str(runtime.parent), "-c", "."], capture_output=True, check=True
    ).stdout
    edgekit_json("twin", "up", "rpi4")
    unpack = edgekit_command("twin", "ssh", "rpi4", "mkdir -p tvm && tar -C tvm -x")
    subprocess.run(unpack, input=packed, check=True, timeout=300)

    ended = subprocess.run(
        edgekit_command("twin", "ssh", "rpi4", f"tvm/{runtime.name} run /etc/hostname ."),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ended.returncode == 1
    assert "edgekit-agent: Failed to get file format from /etc/hostname" in ended.stderr
