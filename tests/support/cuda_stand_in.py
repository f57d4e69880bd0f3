"""CUDA's kernels on a machine without a GPU: g++ compiles their source, and a stand-in for the
driver runs them on the CPU. It proves numbers, copies and launches, and nothing about a GPU."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edgekit.backends.offloading import OffloadedModel
from edgekit.devices.local.device import worker_arguments
from edgekit.devices.local.worker_process import started_worker
from edgekit.profiles.board import load_board
from support.deployed import linked
from support.source import ROOT

BOARD = "local-cuda"
ON_GPU = os.environ.get("EDGEKIT_TEST_ON_GPU") == "1"
"""Whether a GPU runs the kernels after all: `make gpu-check` says so."""
VARIABLE = "EDGEKIT_CUDA_LIBRARY"
_HERE = ROOT / "tests" / "support" / "cuda_on_cpu"
_OPTIONS = ("-std=c++17", "-w", "-O1", "-shared", "-fPIC", "-fno-strict-aliasing")
_SECONDS = 120.0


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="edgekit-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def driver() -> Path:
    """Return the stand-in for NVIDIA's driver."""
    made = _folder() / "libcuda.so"
    subprocess.run(
        ["g++", *_OPTIONS, str(_HERE / "driver.cc"), "-ldl", "-o", str(made)], check=True
    )
    return made


@cache
def compiled_for_cpu(source: str, arch: str) -> bytes:
    """Stand in for NVIDIA's compiler: return the path of a library of the kernels."""
    place = Path(tempfile.mkdtemp(dir=_folder()))
    text = source.replace("__shared__ alignas(64)", "alignas(64) __shared__")
    (place / "kernels.cc").write_text(text, encoding="ascii")
    made = place / "kernels.so"
    linked_to = [str(driver()), f"-Wl,-rpath,{driver().parent}"]
    command = ["g++", *_OPTIONS, f"-I{_HERE}", str(place / "kernels.cc"), "-o", str(made)]
    subprocess.run([*command, *linked_to], check=True)
    return str(made).encode() + b"\0"


@contextmanager
def kernels_on_cpu() -> Iterator[None]:
    """Build programs for the stand-in inside the context, and run them with it."""
    if ON_GPU:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgekit.compiler.gpu.kernels.compile_cuda", compiled_for_cpu)
        patch.setenv(VARIABLE, str(driver()))
        yield


def run_on_stand_in(
    compiled: OffloadedModel, arguments: Sequence[np.ndarray], **settings: str
) -> list[np.ndarray]:
    """Return the outputs of one call of what was compiled within `kernels_on_cpu`."""
    with tempfile.TemporaryDirectory(prefix="deployed-") as place:
        library = linked(compiled, Path(place), load_board(BOARD).target)
        environment = settings if ON_GPU else {VARIABLE: str(driver()), **settings}
        with started_worker(worker_arguments(), environment, "local", _SECONDS) as process:
            list(process.ask("loading", {"do": "load", "library": str(library)}))
            given = [np.require(value, requirements="C") for value in arguments]
            *_, answer = process.ask("running", {"do": "run"}, given)
            return list(answer.arrays)
