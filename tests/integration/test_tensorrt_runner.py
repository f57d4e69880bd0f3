"""The TensorRT runner's C++: its own logic run here, what needs NVIDIA's headers compiled."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import c_networks
from support.region_lab import selection_for
from support.source import ROOT

from edgekit.agent.runtime import ffi_headers
from edgekit.backends.codegen import write_regions
from edgekit.backends.source import INCLUDE
from edgekit.backends.tensorrt import BACKEND
from edgekit.board import load_board
from edgekit.cross.toolchain import find_cxx_compiler, load_toolchain
from edgekit.model import import_model, open_model
from edgekit.pipeline import partition_model

SOURCE = ROOT / "tests" / "support" / "tensorrt_logic.cc"
PROMISES = re.findall(r"PROMISE\((\w+)\),", SOURCE.read_text(encoding="utf-8"))
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-error=deprecated-declarations")


def compiler() -> tuple[str, ...]:
    return find_cxx_compiler(load_toolchain(load_board("local").toolchain)).command


@pytest.fixture(scope="module")
def logic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("logic") / "logic"
    include = ("-I", str(BACKEND.include))
    command = (*compiler(), *STRICT, *include, "-o", str(program), str(SOURCE), "-lpthread")
    subprocess.run(command, check=True)
    return program


def test_every_promise_is_asked_for(logic: Path) -> None:
    listed = subprocess.run([logic], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == sorted(PROMISES)


@pytest.mark.parametrize("promise", PROMISES)
def test_the_runner_keeps_its_promises(promise: str, logic: Path, tmp_path: Path) -> None:
    result = subprocess.run([logic, promise, tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.fixture
def region_command(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """The compiler on the source of a small network's region; skips where NVIDIA's headers are
    not here."""
    said = os.environ.get("TENSORRT_INCLUDE")
    if not said:
        pytest.skip("TENSORRT_INCLUDE is not set: NVIDIA's part of the runner was not compiled")

    def command(options: dict[str, object], *words: str) -> tuple[str, ...]:
        path = tmp_path / "network.onnx"
        onnx.save(c_networks.ds_cnn(), path)
        selection = selection_for("tensorrt", **options)
        regions = partition_model(import_model(open_model(path)), selection).regions
        (files,) = write_regions(regions, selection.backends, tmp_path)
        own = (word for folder in (INCLUDE, BACKEND.include) for word in ("-I", str(folder)))
        theirs = (*said.split(os.pathsep), str(ffi_headers()))
        system = (word for folder in theirs for word in ("-isystem", folder))
        sources = (files.source, *(files.blobs if "-shared" in words else ()))
        return (*compiler(), *STRICT, *words, *own, *system, *sources)

    return command


@pytest.mark.parametrize(
    "options", [{}, {"precision": "fp16", "dla_core": 0}, {"precision": "int8"}]
)
def test_a_region_compiles_with_the_headers_that_are_here(
    options: dict[str, object], region_command: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    subprocess.run(region_command(options, "-fsyntax-only"), cwd=tmp_path, check=True)


def test_where_there_is_no_tensorrt_a_region_says_which_library_is_missing(
    region_command: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    import tvm_ffi

    if ctypes.util.find_library("nvinfer"):
        pytest.skip("TensorRT is installed here")
    words = ("-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-o", "region.so", "-ldl")
    subprocess.run(region_command({}, *words), cwd=tmp_path, check=True)
    (source,) = tmp_path.glob("edgekit_*.cc")
    run = tvm_ffi.load_module(str(tmp_path / "region.so"))[source.stem]
    given = tvm_ffi.from_dlpack(np.zeros((1, 1, 49, 10), "float32"))
    result = tvm_ffi.from_dlpack(np.zeros((1, 12), "float32"))

    with pytest.raises(RuntimeError, match=r"this device has no libnvinfer\.so\.[0-9]+"):
        run(given, result)
