"""Kernels for a GPU, made on a machine that has none: machine code in the library and no source.
What runs on a GPU was not run: here it ends where a driver is asked for."""

from __future__ import annotations

import io
import platform
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from onnx import helper
from support.building import request_for, write_model
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS
from support.onnx_models import onnx_model

from edgekit.agent.build import build_runtime
from edgekit.backends.offloading import compile_model
from edgekit.backends.plan import OffloadPlan
from edgekit.base.errors import MissingToolError, UsageError
from edgekit.base.events import SILENT
from edgekit.building.build import build
from edgekit.compiler.cuda.kernels import compiling_kernels
from edgekit.compiler.cuda.toolkit import find_toolkit, make_driver_stub
from edgekit.cross.library_code import MARK
from edgekit.cross.runtime import CUDA_RUNTIME, cuda_runtime
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.export.application import export

BOARD = "jetson-orin-jp7"
CUBIN = 190
"""EM_CUDA, of ELF files."""


def cubins_in(library: bytes) -> list[ELFFile]:
    """Whole ELF files inside of one."""
    found = []
    start = library.find(b"\x7fELF", 1)
    while start >= 0:
        elf = ELFFile(io.BytesIO(library[start:]))
        if elf["e_machine"] in ("EM_CUDA", CUBIN):
            found.append(elf)
        start = library.find(b"\x7fELF", start + 1)
    return found


def kernels_of(cubin: ELFFile) -> set[str]:
    return {
        symbol.name
        for section in cubin.iter_sections()
        if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC"
    }


@needs("cuda", "g++-aarch64")
def test_a_library_holds_machine_code_of_the_boards_gpu_and_no_source(tmp_path: Path) -> None:
    bundle = build(
        request_for(write_model(tmp_path / "net.onnx"), BOARD), tmp_path / "b", isolated=False
    ).bundle
    library = bundle.library.read_bytes()

    (cubin,) = cubins_in(library)
    assert cubin["e_flags"] >> 8 & 0xFF == 87, "the GPU of an Orin is sm_87"
    assert any(re.fullmatch(r"fused_conv2d\d*_add\d*_relu\d*_kernel", k) for k in kernels_of(cubin))
    assert b"__global__" not in library
    assert b"#include" not in library
    with bundle.library.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym")
        assert MARK in {symbol.name for symbol in symbols.iter_symbols()}
    assert (bundle.path / CUDA_RUNTIME).read_bytes() == cuda_runtime("aarch64").read_bytes()
    assert {file.path for file in bundle.code} >= {"model.so", CUDA_RUNTIME}
    assert bundle.manifest.reproducible
    with pytest.raises(UsageError, match="kernels run on a GPU"):
        export(bundle, tmp_path / "app")


@needs("cuda")
def test_a_region_of_tensorrt_and_kernels_of_the_gpu_are_one_library(tmp_path: Path) -> None:
    request = request_for(write_model(tmp_path / "net.onnx"), "local")
    gpu = load_board(BOARD)
    board = replace(
        request.board,
        name="desk",
        kind="linux",
        gpu=gpu.gpu,
        offload=gpu.offload,
        target=replace(request.board.target, gpu=gpu.target.gpu),
    )
    plan = OffloadPlan(("tensorrt",), never=("nn.relu",), rates=EVERYTHING_PAYS)
    bundle = build(
        replace(request, board=board, offload=plan), tmp_path / "b", isolated=False
    ).bundle

    (region,) = bundle.manifest.regions
    assert region.backend == "tensorrt"
    (cubin,) = cubins_in(bundle.library.read_bytes())
    assert kernels_of(cubin) == {"relu_kernel"}
    with bundle.library.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym")
        names = {symbol.name for symbol in symbols.iter_symbols()}
    assert {MARK, f"__tvm_ffi_{region.name}", "TVMFFIEnvGetStream"} <= names


OPERATORS = (
    helper.make_node("Conv", ["x", "depthwise"], ["a"], group=4, pads=[1, 1, 1, 1]),
    helper.make_node("ConvTranspose", ["x", "transposed"], ["b"], strides=[2, 2]),
    helper.make_node("MaxPool", ["x"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Softmax", ["x"], ["d"], axis=1),
    helper.make_node("ReduceMean", ["x"], ["e"], axes=[2, 3]),
    helper.make_node("Transpose", ["x"], ["f"], perm=[0, 2, 3, 1]),
    helper.make_node("Concat", ["x", "x"], ["g"], axis=1),
    helper.make_node("Reshape", ["x", "rows"], ["h"]),
    helper.make_node("MatMul", ["h", "columns"], ["i"]),
    helper.make_node("ArgMax", ["x"], ["j"], axis=1),
    helper.make_node("TopK", ["h", "two"], ["k", "l"]),
    helper.make_node("CumSum", ["h", "axis"], ["m"]),
    helper.make_node("Resize", ["x", "", "scales"], ["n"], mode="nearest"),
    helper.make_node("Gather", ["h", "axis"], ["o"]),
    helper.make_node("Where", ["mask", "x", "a"], ["p"]),
)


@needs("cuda")
def test_whatever_the_operator_its_kernel_runs_in_threads_of_the_gpu(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    constants = {
        "depthwise": random.standard_normal((4, 1, 3, 3)).astype("float32"),
        "transposed": random.standard_normal((4, 2, 2, 2)).astype("float32"),
        "columns": random.standard_normal((64, 5)).astype("float32"),
        "rows": np.array([4, 64], np.int64),
        "two": np.array([2], np.int64),
        "axis": np.array(1, np.int64),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "mask": np.array([True, False] * 4),
    }
    types = {"j": onnx.TensorProto.INT64, "l": onnx.TensorProto.INT64}
    outputs = [name for node in OPERATORS for name in node.output]
    model = onnx_model(list(OPERATORS), {"x": [1, 4, 8, 8]}, outputs, constants, types)
    onnx.save(model, tmp_path / "net.onnx")
    target = load_board(BOARD).target

    compiled = compile_model(
        import_model(open_model(tmp_path / "net.onnx"), SILENT), target, linked=True
    )

    assert len(compiled.kernels) >= len(OPERATORS)
    assert compiled.code.weights == (), "TVM brings them to the GPU: no view of a file gets there"


@needs("cuda")
def test_names_that_are_no_words_of_c_are_none_there(tmp_path: Path) -> None:
    """Softmax keeps what it computes on the way, under the names of the model's tensors."""
    nodes = [
        onnx.helper.make_node("Resize", ["0/x:1", "", "scales"], ["/up-1/Resize:0"], mode="linear"),
        onnx.helper.make_node("Softmax", ["/up-1/Resize:0"], ["3 y"], axis=-1),
        onnx.helper.make_node("Relu", ["3 y"], ["/out/"]),
    ]
    scales = {"scales": np.array([1, 1, 2, 2], "float32")}
    model = onnx_model(nodes, {"0/x:1": [1, 4, 8, 8]}, {"/out/": [1, 4, 16, 16]}, scales)
    onnx.save(model, tmp_path / "net.onnx")

    compiled = compile_model(
        import_model(open_model(tmp_path / "net.onnx"), SILENT), load_board(BOARD).target
    )

    assert compiled.kernels


def test_without_nvidias_packages_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="nvidia-cuda-nvrtc") as error:
        find_toolkit([tmp_path])
    assert error.value.hint == "pip install 'edgekit[cuda]'"


@needs("cuda")
def test_tvms_own_compiler_of_kernels_is_there_again_afterwards() -> None:
    import tvm_ffi

    name = "tvm_callback_cuda_compile"
    with compiling_kernels("sm_87"):
        ours = tvm_ffi.get_global_func(name)
    with compiling_kernels("sm_72"):
        assert not tvm_ffi.get_global_func(name).same_as(ours)
    code = 'extern "C" __global__ void f() {}'
    assert bytes(ours(code))[:4] == b"\x7fELF"


def test_a_stand_in_for_the_driver_has_all_that_tvms_runtime_wants_of_it(tmp_path: Path) -> None:
    def symbols(path: Path, *, defined: bool) -> set[str]:
        with path.open("rb") as stream:
            table = ELFFile(stream).get_section_by_name(".dynsym")
            return {
                symbol.name
                for symbol in table.iter_symbols()
                if (symbol["st_shndx"] != "SHN_UNDEF") == defined
            }

    wanted = symbols(cuda_runtime(platform.machine()), defined=False)
    of_driver = {name for name in wanted if name.startswith("cu") and not name.startswith("cuda")}
    assert of_driver
    assert symbols(make_driver_stub(tmp_path), defined=True) >= of_driver


@needs("cuda", "x86-64")
def test_the_agent_comes_as_far_as_the_gpu_that_is_missing(tmp_path: Path) -> None:
    """It loads the model, TVM's runtime for CUDA and the virtual machine, and asks for memory."""
    gpu = load_board(BOARD)
    here = load_board("local")
    request = request_for(write_model(tmp_path / "net.onnx"), "local")
    board = replace(here, gpu=gpu.gpu, target=replace(here.target, gpu=gpu.target.gpu))
    bundle = build(
        replace(request, board=board), tmp_path / "b", use_cache=False, isolated=False
    ).bundle
    program = build_runtime(load_toolchain("host"), platform.machine()).program
    sample = tmp_path / "sample"
    sample.mkdir()
    for number, array in enumerate(bundle.reference_inputs().values()):
        np.save(sample / f"input-{number}.npy", array)

    def run(libraries: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, "run", bundle.library, sample],
            capture_output=True,
            text=True,
            check=False,
            env={"LD_LIBRARY_PATH": libraries},
        )

    alone = run("")
    assert alone.returncode != 0
    assert "TVM's runtime for CUDA 13 does not load" in alone.stderr
    with_stub = run(f"{make_driver_stub(tmp_path).parent}:{find_toolkit().cudart.parent}")
    assert with_stub.returncode != 0
    assert "cudaErrorInsufficientDriver" in with_stub.stderr
