"""Kernels in CUDA: NVIDIA's compiler makes code of them without a GPU, and a stand-in for the
driver runs them on this machine's CPU (tests/support/cuda_stand_in.py). None was run on a GPU."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from onnx import TensorProto, helper
from support.building import request_for, write_model
from support.cuda_stand_in import BOARD, VARIABLE, driver, kernels_on_cpu, run_on_stand_in
from support.needs import needs
from support.offloaded import EVERYTHING_PAYS
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.backends.plan import OffloadPlan
from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.events import SILENT
from edgekit.building.build import build
from edgekit.building.products import product_of
from edgekit.bundle.folder import Bundle
from edgekit.compiler.cuda.kernels import compile_cuda
from edgekit.compiler.cuda.toolkit import find_toolkit
from edgekit.devices.local.program import Program
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.cpu import Target

CUBIN = 190
"""EM_CUDA, of ELF files."""


def compiled(model: onnx.ModelProto, folder: Path, target: Target | None = None) -> OffloadedModel:
    onnx.save(model, folder / "net.onnx")
    imported = import_model(open_model(folder / "net.onnx"))
    return compile_model(imported, target or load_board(BOARD).target, linked=True)


def judge(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path, rtol: float = 1e-4
) -> OffloadedModel:
    """Compare the kernels' numbers with onnxruntime's."""
    with kernels_on_cpu():
        made = compiled(model, folder)
        found = run_on_stand_in(made, list(inputs.values()))
    for one, wanted in zip(found, judged_by_onnxruntime(model, inputs), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=rtol, atol=rtol / 10)
    return made


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
    request = request_for(write_model(tmp_path / "net.onnx"), "jetson-orin-jp7")
    bundle = build(request, tmp_path / "b", isolated=False).bundle
    library = bundle.library.read_bytes()

    (cubin,) = cubins_in(library)
    assert cubin["e_flags"] >> 8 & 0xFF == 87, "the GPU of an Orin is sm_87"
    (step,) = bundle.manifest.steps
    assert (step.kind, step.launches) == ("gpu", 1)
    assert kernels_of(cubin) == {"ek_fused_conv2d1_add1_relu1_kernel"}
    assert b"__global__" not in library
    assert [file.path for file in bundle.code] == ["model.so"], "TVM's runtime is not needed"
    assert bundle.manifest.reproducible


@needs("cuda", "x86-64")
def test_code_for_every_newer_gpu_is_what_drivers_compile(tmp_path: Path) -> None:
    request = request_for(write_model(tmp_path / "net.onnx"), BOARD)
    bundle = build(request, tmp_path / "b", isolated=False).bundle
    assert b".target sm_75" in bundle.library.read_bytes()


@needs("cuda", "g++-aarch64")
def test_a_region_of_tensorrt_takes_the_tensors_of_kernels_where_they_lie(tmp_path: Path) -> None:
    request = request_for(write_model(tmp_path / "net.onnx"), "jetson-orin-jp7")
    plan = OffloadPlan(("tensorrt",), never=("nn.relu",), rates=EVERYTHING_PAYS)
    folder = tmp_path / "scratch"
    folder.mkdir()
    made = product_of(request.board).job(replace(request, offload=plan), folder, None)
    made.compile(import_model(request.source), SILENT)

    text = (folder / "model.c").read_text()
    assert "return edgekit_run_region(program, edgekit_region_gpu_" in text
    assert text.count("edgekit_gpu_address(") == 2
    bundle = build(replace(request, offload=plan), tmp_path / "b", isolated=False).bundle
    assert [step.kind for step in bundle.manifest.steps] == ["region", "gpu"]


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


@needs("x86-64")
def test_every_family_of_kernels_computes_what_onnxruntime_does(tmp_path: Path) -> None:
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
    made = judge(model, {"x": random.standard_normal((1, 4, 8, 8)).astype("float32")}, tmp_path)

    assert {"gpu tiles", "gpu each"} <= {rule for _, rule in made.rules}
    on_cpu = [step.name for step in made.code.steps if step.kind not in ("gpu", "copy")]
    assert on_cpu == ["sort", "running"]


@needs("x86-64")
def test_threads_share_long_sums_and_wait_for_each_other(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["a"]),
        helper.make_node("Flatten", ["x"], ["b"]),
        helper.make_node("MatMul", ["b", "m"], ["c"]),
        helper.make_node("ArgMax", ["b"], ["d"], axis=1),
    ]
    weights = {"m": random.standard_normal((867, 150)).astype("float32") / 30}
    model = onnx_model(nodes, {"x": [1, 3, 17, 17]}, ["a", "c", "d"], weights, {"d": 7})
    x = random.standard_normal((1, 3, 17, 17)).astype("float32")

    made = judge(model, {"x": x}, tmp_path)

    assert "gpu rows" in dict(made.rules).values()


@needs("x86-64")
def test_arithmetic_that_languages_leave_open_has_one_result(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["i"], ["a"], to=TensorProto.INT32),
        helper.make_node("Cast", ["j"], ["b"], to=TensorProto.INT32),
        helper.make_node("Div", ["a", "b"], ["quotient"]),
        helper.make_node("Mod", ["a", "b"], ["remainder"]),
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.INT8),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Max", ["x", "y"], ["most"]),
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Sigmoid", ["half"], ["h"]),
    ]
    i = np.array([7, -7, -(2**31), 5], np.float32)
    j = np.array([2, -1, -1, 0], np.float32)
    types = dict.fromkeys(("quotient", "remainder"), TensorProto.INT32)
    types |= {"narrow": TensorProto.INT8, "wide": TensorProto.INT64, "h": TensorProto.FLOAT16}
    outputs = ["quotient", "remainder", "narrow", "wide", "most", "positive", "h"]
    shapes = {name: [4] for name in "ijxy"}
    model = onnx_model(nodes, shapes, outputs, {}, types)
    x = np.array([np.nan, 300.5, -1e30, 2.5], np.float32)
    y = np.array([1, np.nan, 3, 4], np.float32)
    with kernels_on_cpu():
        made = compiled(model, tmp_path)
        found = run_on_stand_in(made, [i, j, x, y])

    quotient, remainder, narrow, wide, most, positive, h = found
    assert {step.kind for step in made.code.steps} == {"gpu"}
    assert quotient.tolist() == [3, 7, -(2**31), 0]
    assert remainder.tolist() == [1, 0, 0, 0]
    assert narrow.tolist() == [0, 44, 0, 2]
    assert wide.tolist() == [0, 300, -(2**63), 2]
    np.testing.assert_array_equal(most, np.maximum(x, y))
    np.testing.assert_array_equal(positive, np.maximum(x, np.float32(0)))
    assert h.dtype == np.float16
    np.testing.assert_allclose(h[1:], [1, 0, 0.924], atol=1e-3)


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

    assert compiled(model, tmp_path).kernels


def test_without_nvidias_packages_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="nvidia-cuda-nvrtc") as error:
        find_toolkit([tmp_path])
    assert error.value.hint == "pip install 'edgekit[cuda]'"


@needs("cuda")
def test_an_error_of_nvidias_compiler_is_told_with_its_line() -> None:
    with pytest.raises(BuildError, match=r'kernels.cu.*: error: .*"nonsense" is undefined'):
        compile_cuda('extern "C" __global__ void f() { nonsense(); }', "sm_87")
    assert compile_cuda('extern "C" __global__ void f() {}', "sm_90")[:4] == b"\x7fELF"
    assert b".target sm_75" in compile_cuda('extern "C" __global__ void f() {}', "compute_75")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    folder = tmp_path_factory.mktemp("cuda")
    with kernels_on_cpu():
        request = request_for(write_model(folder / "net.onnx"), BOARD)
        yield build(request, folder / "b", use_cache=False, isolated=False).bundle


def failure_of(bundle: Bundle, folder: Path, settings: dict[str, str]) -> str:
    """What a run says; the library's copy loads the driver anew."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        library = folder / "model.so"
        library.write_bytes(bundle.library.read_bytes())
        program = Program(str(library), 1, lambda text: None)
        call = program.prepare([*map(np.ascontiguousarray, bundle.reference_inputs().values())])
        with pytest.raises(RuntimeError) as error:
            call()
    return str(error.value)


@needs("x86-64")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (2, "the device a CPU has no room to hold the tensors: the model takes 2576 bytes of it"),
        (100, "NVIDIA's driver has no GPU on this machine"),
        (209, 'are for another GPU than a CPU: build it with arch = "sm_75" in [gpu]'),
        (222, "the driver of a CPU is of CUDA 12.4, and the model's kernels need one of CUDA 13"),
        (
            719,
            "the device a CPU failed to run a kernel (CUDA_ERROR_LAUNCH_FAILED, CUDA's error 719)",
        ),
    ],
)
def test_a_fault_of_the_device_is_a_sentence(
    bundle: Bundle, tmp_path: Path, fault: int, said: str
) -> None:
    settings = {VARIABLE: str(driver()), "EDGEKIT_TEST_CUDA_FAULT": str(fault)}
    assert said in failure_of(bundle, tmp_path, settings)


@needs("x86-64")
def test_a_machine_without_a_driver_says_so(bundle: Bundle, tmp_path: Path) -> None:
    told = failure_of(bundle, tmp_path, {VARIABLE: "/nowhere/libcuda.so.1"})
    assert told.startswith("this machine has no driver of NVIDIA's: /nowhere/libcuda.so.1 does not")


@needs("x86-64")
def test_a_profile_shows_time_on_the_gpu(bundle: Bundle, tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    library.write_bytes(bundle.library.read_bytes())
    with kernels_on_cpu():
        program = Program(str(library), 1, lambda text: None)
        inputs = [*map(np.ascontiguousarray, bundle.reference_inputs().values())]
        (kernel,) = program.profile(inputs, 3, 0, lambda done: None)["kernels"]  # type: ignore[misc]
    assert 0 < kernel["device_nanoseconds"] <= kernel["nanoseconds"]
