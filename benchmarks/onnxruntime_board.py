"""onnxruntime's own aarch64 library on an emulated board: its published wheel has it, and a few
lines of C++ are all that it needs. No Python on the board."""

from __future__ import annotations

import shlex
import statistics
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from edgekit.bundle.folder import Bundle
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.twin.access import Access

_PLATFORMS = ("manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
_FOLDER = "onnxruntime-benchmark"
_LIBRARY, _PROGRAM = "libonnxruntime.so", "run"
_WARMUP, _RUNS = 2, 2
_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
}
"""What onnxruntime calls them."""


@dataclass(frozen=True)
class BoardRunner:
    access: Access

    def nanoseconds(self, model: Path, bundle: Bundle) -> float:
        """Time one inference of the bundle's model on one thread."""
        remote = f"{_FOLDER}/model.onnx"
        self._send(model.read_bytes(), remote)
        outputs = list(bundle.reference_outputs())
        words = [f"./{_FOLDER}/{_PROGRAM}", f"./{_FOLDER}/{_LIBRARY}", remote]
        words += [str(_WARMUP + _RUNS), str(len(outputs)), *outputs]
        for number, (name, array) in enumerate(bundle.reference_inputs().items()):
            file = f"{_FOLDER}/input-{number}"
            self._send(array.tobytes(), file)
            shape = [str(extent) for extent in array.shape]
            words += [name, str(_TYPES[str(array.dtype)]), file, str(len(shape)), *shape]
        said = self._command(shlex.join(words))
        return statistics.median(float(line) for line in said.split()[_WARMUP:])

    def _send(self, content: bytes, path: str) -> None:
        self._command(f"mkdir -p {_FOLDER} && cat > {shlex.quote(path)}", content)

    def _command(self, command: str, content: bytes = b"") -> str:
        done = subprocess.run(
            self.access.command(command), input=content, capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip() or "no answer")
        return done.stdout.decode()


def prepare(access: Access, board: Board, folder: Path) -> BoardRunner:
    """The same version as is installed here, sent to the board with the program that runs it."""
    runner = BoardRunner(access)
    runner._send(_library(folder), f"{_FOLDER}/{_LIBRARY}")
    program = folder / _PROGRAM
    compiler = find_cxx_compiler(load_toolchain(board.toolchain)).command
    source = Path(__file__).with_suffix(".cc")
    command = (*compiler, "-std=c++17", "-O2", "-o", str(program), str(source), "-ldl")
    run_tool(command, folder=folder, doing="compile the program that runs onnxruntime")
    runner._send(program.read_bytes(), f"{_FOLDER}/{_PROGRAM}")
    runner._command(f"chmod +x {_FOLDER}/{_PROGRAM}")
    return runner


def _library(folder: Path) -> bytes:
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(wheels)]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, f"onnxruntime=={version('onnxruntime')}"], check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.startswith(f"onnxruntime/capi/{_LIBRARY}."))
        return archive.read(name)
