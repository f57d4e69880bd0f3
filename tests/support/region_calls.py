"""Regions of built bundles, called as a program of one's own would: by many threads at once, and in
several libraries in one process. For ARM boards, the program runs on an emulated CPU."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx

from edgekit.aot.native.write import SOURCE
from edgekit.backends.base import Region
from edgekit.backends.offloading import partition_model
from edgekit.backends.plan import OffloadPlan, selection_of
from edgekit.building.build import build
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.models.model import import_model
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.toolchain import load_toolchain
from support.arm_machine import BOARD, arm_library
from support.building import request_for
from support.compiled_once import compiled_once
from support.emulated_arm import arm_emulator
from support.offloaded import EVERYTHING_PAYS
from support.region_lab import library_here

ARM_LIBRARIES = Path("/usr/aarch64-linux-gnu")
_CPU = "cortex-a72"

WHERE = {"ncnn": "local", "onednn": "local", "acl": BOARD}
"""A board that can run each backend here."""


@dataclass(frozen=True)
class BuiltRegion:
    """The only region of a bundle that was built."""

    board: Board
    library: Path
    region: Region


def built_region(backend: str, model: onnx.ModelProto, folder: Path) -> BuiltRegion:
    board = load_board(WHERE[backend])
    if board.name == BOARD:
        arm_library(backend)
        arm_emulator()
    else:
        library_here(backend)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    plan = OffloadPlan((backend,), rates=EVERYTHING_PAYS)
    request = dataclasses.replace(request_for(folder / "model.onnx", board.name), offload=plan)
    (region,) = partition_model(import_model(request.source), selection_of(plan)).regions
    bundle = build(request, folder / "bundle", isolated=False).bundle
    return BuiltRegion(board, bundle.library, region)


def another_model(built: BuiltRegion, folder: Path) -> Path:
    """The same library once more, which the loader takes for another: with all beside it."""
    shutil.copytree(built.library.parent, folder)
    return folder / built.library.name


@dataclass(frozen=True)
class Called:
    output: np.ndarray | None
    problem: str
    """What went wrong, in the region's words; empty where nothing did."""


def call_region(
    built: BuiltRegion,
    value: np.ndarray,
    folder: Path,
    *,
    libraries: tuple[Path, ...] = (),
    threads: int = 1,
    memory: int = 0,
) -> Called:
    """Call it in `libraries`, or the bundle's own. `memory` is what is left for a call, in MiB; an
    emulated CPU has that much in all."""
    (given,), (made,) = built.region.inputs, built.region.outputs
    emulated = built.board.name == BOARD
    program = _program(built.board.name)
    (folder / "input").write_bytes(np.ascontiguousarray(value, np.float32).tobytes())
    words = [
        *(_emulator(memory) if emulated else ()),
        *(str(program), str(threads), "0" if emulated else str(memory)),
        *(str(folder / "input"), str(folder / "output")),
        *(_extents(given.shape), _extents(made.shape)),
        *map(str, libraries or (built.library,)),
    ]
    done = subprocess.run(
        words,
        env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), f"it ended with {done.returncode}: {done.stderr[-2000:]}"
    if done.returncode == 1:
        return Called(None, done.stderr.strip())
    content = (folder / "output").read_bytes()
    return Called(np.frombuffer(content, np.float32).reshape(made.shape), "")


def _extents(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _emulator(memory: int) -> tuple[str, ...]:
    """Return the emulator with an address space of so many MiB, QEMU's only limit; 0 is none."""
    limit = ("-R", f"{memory}M") if memory else ()
    return (arm_emulator(), "-cpu", _CPU, "-L", str(ARM_LIBRARIES), *limit)


@lru_cache
def _program(board_name: str) -> Path:
    board = load_board(board_name)
    toolchain = load_toolchain(board.toolchain)
    return compiled_once(
        "calls",
        find_cxx_compiler(toolchain),
        ("-std=c++17", "-O1"),
        Path(__file__).with_suffix(".cc"),
        (SOURCE,),
        ("-ldl", "-pthread"),
    )
