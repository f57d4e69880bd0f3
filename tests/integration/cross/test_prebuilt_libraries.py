"""Libraries that come built: out of Debian for Arm, out of a Python package for this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.emulated_arm import arm_emulator
from support.needs import ARM_PROGRAMS, needs

from edgekit.cross.sources import BuiltLibrary, build_library, built_in_recipe
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

pytestmark = pytest.mark.slow

RELU_BY_ACL = r"""
#include "arm_compute/runtime/NEON/NEFunctions.h"
#include "arm_compute/runtime/Tensor.h"
#include <cstdio>
using namespace arm_compute;
extern "C" void run() {
  Tensor from, to;
  TensorInfo info(TensorShape(8U), 1, DataType::F32);
  from.allocator()->init(info);
  to.allocator()->init(info);
  NEActivationLayer relu;
  relu.configure(&from, &to, ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU));
  from.allocator()->allocate();
  to.allocator()->allocate();
  for (int i = 0; i < 8; ++i) reinterpret_cast<float*>(from.buffer())[i] = i - 4;
  relu.run();
  for (int i = 0; i < 8; ++i) std::printf("%g ", reinterpret_cast<float*>(to.buffer())[i]);
}
"""
RELU_BY_ONEDNN = r"""
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
using namespace dnnl;
extern "C" void run() {
  engine cpu(engine::kind::cpu, 0);
  stream queue(cpu);
  memory::desc info({8}, memory::data_type::f32, memory::format_tag::a);
  float from[8], to[8];
  for (int i = 0; i < 8; ++i) from[i] = i - 4;
  memory source(info, cpu, from), target(info, cpu, to);
  eltwise_forward::primitive_desc relu(cpu, prop_kind::forward_inference,
                                       algorithm::eltwise_relu, info, info, 0.f);
  eltwise_forward(relu).execute(queue, {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}});
  queue.wait();
  for (int i = 0; i < 8; ++i) std::printf("%g ", to[i]);
}
"""
MAIN = 'extern "C" void run();\nint main() { run(); }\n'
ANSWER = "0 0 0 0 0 1 2 3 "


def shared_library_and_program(
    recipe: str, board_name: str, source: str, folder: Path
) -> BuiltLibrary:
    """A shared library, as a model is, that uses the library; and a program that loads it."""
    board = load_board(board_name)
    toolchain = load_toolchain(board.toolchain)
    library = build_library(built_in_recipe(recipe), board, toolchain)
    compiler = find_cxx_compiler(toolchain).command
    (folder / "model.cc").write_text(source)
    (folder / "main.cc").write_text(MAIN)
    include = [f"-I{path}" for path in library.include]
    rpath = "-Wl,-rpath,$ORIGIN"
    subprocess.run(
        [
            *(*compiler, "-O1", "-std=c++17", "-fPIC", "-shared", *include),
            *("model.cc", *library.link, rpath, "-o", "model.so"),
        ],
        cwd=folder,
        check=True,
    )
    for file in library.run_time:
        shutil.copy(file, folder)
    subprocess.run(
        [*compiler, "main.cc", "./model.so", rpath, f"-Wl,-rpath-link,{folder}", "-o", "main"],
        cwd=folder,
        check=True,
    )
    return library


@needs(*ARM_PROGRAMS, "no-aarch64", "debian")
def test_arm_compute_library_runs_inside_a_shared_library(tmp_path: Path) -> None:
    library = shared_library_and_program("acl", "rpi4", RELU_BY_ACL, tmp_path)
    found = subprocess.run(
        ["aarch64-linux-gnu-g++", "-print-file-name=libc.so.6"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    printed = subprocess.run(
        [arm_emulator(), "-L", Path(found.strip()).parents[1], "./main"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert printed == ANSWER
    assert (library.folder / "LICENSE").is_file()
    assert library.run_time == ()


@needs("x86-64")
def test_onednn_is_found_beside_what_uses_it(tmp_path: Path) -> None:
    library = shared_library_and_program("onednn", "local", RELU_BY_ONEDNN, tmp_path)

    printed = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert printed.stdout == ANSWER
    assert [file.name for file in library.run_time] == ["libdnnl.so.3", "libgomp.so.1"]
