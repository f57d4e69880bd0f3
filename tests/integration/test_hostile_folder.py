"""A command in a folder that a stranger wrote runs nothing of it, and no child process does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.building import environment, write_model
from support.hostile_folder import HostileFolder, hostile_folder, launcher
from support.needs import needs
from support.ports import free_port

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.children import run, statement_command
from edgekit.base.errors import DeviceError
from edgekit.cross.sources.index import pip_config
from edgekit.cross.toolchain import find_compiler
from edgekit.devices.flash.job import FlashJob
from edgekit.devices.flash.programs import OPENOCD, write_with
from edgekit.devices.flash.tool import HERE
from edgekit.farm.plan import FarmPlan
from edgekit.profiles.board import load_board
from edgekit.profiles.hardware import Flash
from edgekit.profiles.toolchain import load_toolchain
from edgekit.twin.tools import find_tool

_PATIENCE_SECONDS = 240.0


@pytest.fixture
def hostile(tmp_path: Path) -> HostileFolder:
    return hostile_folder(tmp_path)


@pytest.fixture
def inside(hostile: HostileFolder, monkeypatch: pytest.MonkeyPatch) -> HostileFolder:
    """This process is in it."""
    monkeypatch.chdir(hostile.path)
    monkeypatch.setenv("PATH", hostile.search_path)
    return hostile


def edgekit_in(hostile: HostileFolder, *arguments: str) -> subprocess.Popen[str]:
    place = hostile.path.parent
    return subprocess.Popen(
        [sys.executable, str(launcher(place / "launcher")), *arguments],
        cwd=hostile.path,
        env=environment(
            {
                "PATH": hostile.search_path,
                "XDG_DATA_HOME": str(place / "data"),
                "XDG_CONFIG_HOME": str(place / "config"),
                "EDGEKIT_CACHE_DIR": str(place / "cache"),
            }
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = process.communicate(timeout=_PATIENCE_SECONDS)
    assert process.returncode == code, said
    return said


def test_the_folder_would_leave_marks(hostile: HostileFolder) -> None:
    """The folder is what the other tests take it for."""
    path = hostile.search_path
    subprocess.run(
        [sys.executable, "-c", "import asyncio"], cwd=hostile.path, env={"PATH": path}, check=True
    )
    subprocess.run(["/bin/sh", "-c", "gcc"], cwd=hostile.path, env={"PATH": path}, check=False)

    assert {"asyncio", "gcc"} <= set(hostile.left)


def test_a_deployment_to_this_machine_runs_nothing_of_the_folder(hostile: HostileFolder) -> None:
    """It compiles, links, compares and measures: four kinds of child processes."""
    write_model(hostile.path / "net.onnx")

    said = ended(edgekit_in(hostile, "deploy", "net.onnx", "--board", "local"))

    assert "net" in said
    assert hostile.left == []


def test_doctor_runs_nothing_of_the_folder(hostile: HostileFolder) -> None:
    ended(edgekit_in(hostile, "doctor"))

    assert hostile.left == []


def test_a_tracker_runs_nothing_of_the_folder(hostile: HostileFolder) -> None:
    process = edgekit_in(hostile, "rpc", "tracker", "--port", str(free_port()), "--json")
    assert process.stdout is not None
    assert any("port" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=_PATIENCE_SECONDS)

    assert hostile.left == []


def test_run_as_a_module_it_forgets_the_current_folder(tmp_path: Path) -> None:
    """Python looks into it first for what `-m` names; what comes later is no file of it."""
    for name in ("click", "asyncio", "tomli"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was run')\n")

    done = subprocess.run(
        [sys.executable, "-m", "edgekit", "boards", "show", "rpi4"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "rpi4" in done.stdout


def test_pip_runs_nothing_of_the_folder(inside: HostileFolder) -> None:
    assert pip_config().indexes is not None

    assert inside.left == []


def test_a_compiler_of_the_folder_is_none(inside: HostileFolder) -> None:
    compiler = find_compiler(load_toolchain("host"))

    assert compiler.path.is_absolute()
    assert inside.path not in compiler.path.parents
    assert inside.left == []


def test_a_python_child_imports_nothing_of_the_folder(inside: HostileFolder) -> None:
    statement = "import asyncio, secrets, numpy, edgekit, pip; print(edgekit.__file__)"

    done = run(statement_command(statement), folder=inside.path, limit_s=_PATIENCE_SECONDS)

    assert done.status == 0, done.errors
    assert str(inside.path) not in done.output
    assert inside.left == []


def test_a_farms_worker_runs_nothing_of_the_folder(inside: HostileFolder) -> None:
    """It works in the folder of its project, whose boards it knows."""
    command = [*FarmPlan(()).worker, "--help"]

    run(command, folder=inside.path, limit_s=_PATIENCE_SECONDS)

    assert inside.left == []


def test_a_flash_tool_runs_in_an_empty_folder(inside: HostileFolder) -> None:
    """pyOCD, stm32loader and OpenOCD find no settings of their own there."""
    said = HERE.run([HERE.find("sh", ""), "-c", "pwd; ls -A"]).output.splitlines()

    assert len(said) == 1
    assert Path(said[0]) != inside.path
    assert inside.path not in Path(said[0]).parents


@needs("openocd")
def test_openocd_reads_its_own_scripts_and_none_of_the_folder(inside: HostileFolder) -> None:
    elf = inside.path / "firmware.elf"
    elf.write_bytes(b"\x7fELF")
    flash = Flash(driver="openocd", scripts=("interface/cmsis-dap.cfg", "target/nrf52.cfg"))
    firmware = FirmwareFile(elf, build_id="00", segments=(), ram=0, functions=())
    board = load_board("stm32f746g-disco")

    with pytest.raises(DeviceError) as refused:
        write_with(OPENOCD, FlashJob(firmware, board, flash, "mine"))

    assert "no debug probe" in refused.value.message
    assert inside.left == []
    program = find_tool("openocd")
    assert program is not None
    subprocess.run([str(program), "-f", "target/nrf52.cfg", "-c", "exit"], cwd=inside.path)
    assert inside.left == ["target.nrf52.cfg"], "it would have been read"
