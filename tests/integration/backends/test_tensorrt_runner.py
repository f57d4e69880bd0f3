"""The TensorRT runner's C++: its own logic run here, what needs NVIDIA's headers compiled."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import c_networks
from support.needs import needs, require
from support.offloaded import selection_for
from support.source import ROOT

from edgekit.backends.codegen import write_regions
from edgekit.backends.offloading import partition_model
from edgekit.backends.source import INCLUDE
from edgekit.backends.tensorrt import BACKEND
from edgekit.backends.tensorrt.source import runner_source
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

RUNNER = Path(BACKEND.include).parent / "runner"
SOURCE = ROOT / "tests" / "support" / "tensorrt_logic.cc"
PROMISES = re.findall(r"PROMISE\((\w+)\),", SOURCE.read_text(encoding="utf-8"))
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-error=deprecated-declarations")


def compiler() -> tuple[str, ...]:
    return find_cxx_compiler(load_toolchain(load_board("local").toolchain)).command


@pytest.fixture(scope="module")
def logic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("logic") / "logic"
    include = (*("-I", str(RUNNER)), *("-I", str(BACKEND.include)))
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


def compile_runner(folder: Path, *words: str) -> None:
    """As bundles have it."""
    require("tensorrt-headers")
    said = os.environ["TENSORRT_INCLUDE"]
    (folder / "edgekit_tensorrt.cc").write_text(runner_source())
    theirs = (word for place in said.split(os.pathsep) for word in ("-isystem", place))
    command = (*compiler(), *STRICT, *theirs, *words, "edgekit_tensorrt.cc")
    subprocess.run(command, cwd=folder, check=True)


@needs("tensorrt-headers")
def test_the_runner_compiles_with_the_headers_that_are_here(tmp_path: Path) -> None:
    compile_runner(tmp_path, "-fsyntax-only")


@needs("tensorrt-headers", "no-tensorrt")
def test_where_there_is_no_tensorrt_the_runner_says_which_library_is_missing(
    tmp_path: Path,
) -> None:
    compile_runner(tmp_path, "-shared", "-fPIC", "-O1", "-o", "libedgekit_tensorrt.so")
    region = compiled_region(tmp_path)

    with pytest.raises(RuntimeError, match=r"this device has no libnvinfer\.so\.[0-9]+"):
        region()


def compiled_region(folder: Path, **options: object) -> Callable[[], None]:
    """The region of a small network in a library of its own, as a model has it: to be called."""
    import tvm_ffi

    path = folder / "network.onnx"
    onnx.save(c_networks.ds_cnn(), path)
    selection = selection_for("tensorrt", **options)
    regions = partition_model(import_model(open_model(path)), selection).regions
    (files,) = write_regions(regions, selection.backends, folder)
    own = (INCLUDE, Path(BACKEND.include), ffi_headers())
    includes = (word for place in own for word in ("-isystem", str(place)))
    flags = ("-shared", "-fPIC", "-fvisibility=hidden", "-DEDGEKIT_WITH_TVM", "-o", "region.so")
    command = (*compiler(), *STRICT, *flags, *includes, files.source, *files.blobs, "-ldl")
    subprocess.run(command, cwd=folder, check=True)
    run = tvm_ffi.load_module(str(folder / "region.so"))[Path(files.source).stem]
    given = tvm_ffi.from_dlpack(np.zeros((1, 1, 49, 10), "float32"))
    result = tvm_ffi.from_dlpack(np.zeros((1, 12), "float32"))
    return lambda: run(given, result)


def test_a_region_without_its_runner_says_who_makes_that(tmp_path: Path) -> None:
    region = compiled_region(tmp_path)

    with pytest.raises(RuntimeError, match=r"can't be loaded .*edgekit deploy compiles it"):
        region()


def test_a_region_takes_no_runner_of_another_edgekit(tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text("int edgekit_tensorrt_open_0(void) { return 0; }\n")
    command = ("gcc", "-shared", "-fPIC", "-o", "libedgekit_tensorrt.so", "other.c")
    subprocess.run(command, cwd=tmp_path, check=True)
    region = compiled_region(tmp_path, precision="tf32", dla_core=-1)

    with pytest.raises(RuntimeError, match="of another edgekit than the model"):
        region()


def test_the_runner_is_one_file_that_wants_nothing_of_ours() -> None:
    source = runner_source()

    assert '#include "edgekit' not in source
    assert source.count("#include <NvInfer.h>") == 1
    assert "#pragma once" not in source
