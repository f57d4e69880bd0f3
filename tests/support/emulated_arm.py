"""A bundle for an ARM board, run on this machine by QEMU."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np

from edgekit.agent.build import build_agent, build_runtime
from edgekit.api.functions import make_request
from edgekit.base.paths import built_in_profiles
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from support.needs import ARM_PROGRAMS, require

CPUS = {"rpi4": "cortex-a72", "rpi5": "cortex-a76"}
"""Boards without dot products, and with them; and what QEMU is told to be."""
WITH_I8MM = "board-with-i8mm"
"""A made-up CPU with the features of `write_board_with_i8mm`."""
_C_LIBRARY = Path("/usr/aarch64-linux-gnu")


def arm_emulator() -> str:
    """QEMU for single programs, which run with the cross compiler's C library."""
    require(*ARM_PROGRAMS)
    found = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    assert found is not None
    return found


@lru_cache(maxsize=1)
def _agent() -> Path:
    return build_agent(load_toolchain(load_board("rpi4").toolchain), "aarch64").program


def write_board_with_i8mm(folder: Path) -> None:
    """A profile as a user would write it, beside the one that it is made from."""
    known = built_in_profiles("boards") / "rpi5.toml"
    text = known.read_text(encoding="utf-8").replace('"rpi5"', f'"{WITH_I8MM}"')
    changed = text.replace('"+dotprod"', '"+dotprod", "+i8mm"')
    assert changed != text
    (folder / f"{WITH_I8MM}.toml").write_text(changed, encoding="utf-8")


def build_and_run(model: Path, board: str, folder: Path) -> tuple[Bundle, np.ndarray]:
    """The bundle, and its only output for the reference input."""
    emulator, agent = arm_emulator(), _agent()
    request = make_request(model, board, None, {}, {})
    bundle = build(request, folder / "bundle", use_cache=False, isolated=False).bundle
    sample = folder / "sample"
    shutil.copytree(bundle.path / "reference" / "random", sample)
    (sample / "output-0.npy").unlink()
    program = [emulator, "-cpu", CPUS.get(board, "max"), "-L", str(_C_LIBRARY), str(agent)]
    arguments = ["run", "--threads", "1", str(bundle.library), str(sample)]
    subprocess.run([*program, *arguments], check=True, capture_output=True)
    return bundle, np.load(sample / "output-0.npy")


def arm_agent(*words: str) -> subprocess.Popen[str]:
    """The agent for a 64-bit Arm board, with a command of its own, on this machine's kernel."""
    toolchain = load_toolchain(load_board("rpi4").toolchain)
    agent = build_runtime(toolchain, "aarch64").program if words[0] == "serve" else _agent()
    command = [arm_emulator(), "-cpu", "max", "-L", str(_C_LIBRARY), str(agent), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
