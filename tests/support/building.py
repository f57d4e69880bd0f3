"""A model small enough to build in seconds, and edgekit as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from edgekit.building.request import BuildRequest
from edgekit.models.model import open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from support.needs import require
from support.onnx_models import onnx_model

CHECKOUT = Path(__file__).resolve().parents[2]


def write_model(path: Path, scale: float = 0.1) -> Path:
    """A convolution, a bias and a ReLU."""
    weights = np.linspace(-1, 1, 4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3) * scale
    bias = np.array([0.5, -0.5, 0.25, 0.0], dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "weights", "bias"], ["sum"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["sum"], ["features"]),
    ]
    model = onnx_model(
        nodes, {"image": [1, 3, 8, 8]}, ["features"], {"weights": weights, "bias": bias}
    )
    onnx.save(model, path)
    return path


def request_for(model: Path, board_name: str = "local") -> BuildRequest:
    board = load_board(board_name)
    return BuildRequest(open_model(model), board, load_toolchain(board.toolchain))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder, by its path."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def names_in(folder: Path) -> set[str]:
    return {item.name for item in folder.iterdir()} if folder.is_dir() else set()


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "NO_COLOR": "1", **(extra or {})}


def script_on_threads(script: str, threads: int, *folders: Path) -> str:
    """What a script prints in a process whose kernels have so many threads; it finds `support`, and
    what is in `folders`."""
    found = (CHECKOUT, CHECKOUT / "tests", *folders)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment({"TVM_NUM_THREADS": str(threads), "PYTHONPATH": ":".join(map(str, found))}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "edgekit", *arguments]


def run_edgekit(*arguments: str, folder: Path, extra: Mapping[str, str] | None = None) -> Ran:
    """Run the command to its end in `folder`."""
    done = subprocess.run(
        command_line(*arguments),
        cwd=folder,
        env=environment(extra),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def tmpfs(options: str) -> str:
    """The shell command that mounts a small or read-only file system at $1."""
    return f'mount -t tmpfs -o {options} none "$1"'


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
"""The shell command that makes what is at $1 read-only, for root too."""


def run_with_mount(mount: str, mount_point: Path, arguments: Sequence[str], *, folder: Path) -> Ran:
    """Run the command where `mount_point` is mounted as `mount` says, for it alone. What lies
    there when the command ends is the last line on stdout."""
    require("mounts")
    inside = ["unshare", "-rm", "sh", "-c"]
    script = f'{mount}; point="$1"; shift; "$@"; code=$?; '
    script += 'echo; find "$point" -mindepth 1 | tr "\\n" " "; exit $code'
    done = subprocess.run(
        [*inside, script, "sh", str(mount_point), *command_line(*arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def processes_with(mark: str) -> list[str]:
    """The command lines of all processes that carry `mark` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # ended meanwhile
    return found


def write_embedding(path: Path) -> Path:
    """Rows of a constant at the indices 'ids', three of them."""
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["rows"])],
        "embedding",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, [3, 4])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path
