"""Regions between kernels of a GPU: nothing goes through the CPU's memory. No GPU is needed, and
none was there: NVIDIA's libraries are stand-ins, and what is tested is what is asked of them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.source import ROOT

from edgekit.backends.source import INCLUDE
from edgekit.backends.tensorrt import BACKEND
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.profiles.toolchain import load_toolchain

SUPPORT = ROOT / "tests" / "support"
RUNNER = Path(BACKEND.include).parent / "runner"
STUBS = SUPPORT / "tensorrt_header_stubs"
LIBRARIES = ("libnvinfer.so.10", "libnvonnxparser.so.10", "libcudart.so.12", "libcuda.so.1")

REGION = """
#define EDGEKIT_WITH_TVM
#include "edgekit_region.h"
struct Here { void run(const DLTensor* const*, DLTensor* const*) {} };
struct There : Here { static constexpr bool kTakesGpu = true; };
static const edgekit::Tensor inputs[] = {{"x", 1, {4}, {kDLFloat, 32, 1}}};
static const edgekit::Tensor outputs[] = {{"y", 1, {4}, {kDLFloat, 32, 1}}};
extern "C" const char* attempt(int takes_gpu, int input, int output, int id) {
  static std::string said;
  int64_t shape[] = {4};
  float data[4] = {};
  DLTensor x{data, {DLDeviceType(input), id}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  DLTensor y{data, {DLDeviceType(output), id}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  TVMFFIAny arguments[2] = {}, result{};
  arguments[0].type_index = arguments[1].type_index = kTVMFFIDLTensorPtr;
  arguments[0].v_ptr = &x;
  arguments[1].v_ptr = &y;
  const int failed = takes_gpu
      ? edgekit::call<There>("r", inputs, outputs, arguments, 2, &result)
      : edgekit::call<Here>("r", inputs, outputs, arguments, 2, &result);
  return failed ? "refused" : "";
}
extern "C" void TVMFFIErrorSetRaisedFromCStr(const char*, const char*) {}
"""


def compiled(folder: Path, *words: str | Path) -> None:
    compiler = find_cxx_compiler(load_toolchain("host")).command
    include = [f"-I{path}" for path in (RUNNER, BACKEND.include, INCLUDE, STUBS, SUPPORT)]
    headers = ("-isystem", str(ffi_headers()))
    command = (*compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", *include, *headers)
    subprocess.run([*command, *map(str, words)], check=True, cwd=folder)


def test_an_engine_takes_tensors_where_they_are_and_works_on_the_callers_stream(
    tmp_path: Path,
) -> None:
    stand_in = SUPPORT / "tensorrt_gpu_stand_in.cc"
    compiled(tmp_path, "-shared", "-fPIC", stand_in, "-o", LIBRARIES[0])
    for name in LIBRARIES[1:]:
        (tmp_path / name).symlink_to(LIBRARIES[0])  # one library by four names, which counts all
    compiled(tmp_path, SUPPORT / "tensorrt_gpu_tensors.cc", "-ldl", "-lpthread", "-o", "program")
    ran = subprocess.run(
        [tmp_path / "program"],
        capture_output=True,
        text=True,
        env={"LD_LIBRARY_PATH": str(tmp_path), "EDGEKIT_TENSORRT_CACHE": str(tmp_path / "cache")},
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("region")
    (folder / "region.cc").write_text(REGION, encoding="utf-8")
    compiled(folder, "-shared", "-fPIC", "region.cc", "-o", "region.so")
    function = ctypes.CDLL(str(folder / "region.so")).attempt
    function.restype = ctypes.c_char_p
    yield function
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("takes_gpu", "places", "device", "taken"),
    [
        (True, (1, 1), 0, True),
        (True, (2, 2), 0, True),
        (True, (1, 2), 0, False),
        (True, (2, 1), 0, False),
        (True, (2, 2), 1, False),
        (True, (4, 4), 0, False),
        (False, (1, 1), 0, True),
        (False, (2, 2), 0, False),
    ],
)
def test_a_region_takes_tensors_of_the_gpu_only_if_it_can_and_only_all_together(
    attempt: Any, takes_gpu: bool, places: tuple[int, int], device: int, taken: bool
) -> None:
    assert attempt(int(takes_gpu), *places, device) == (b"" if taken else b"refused")
