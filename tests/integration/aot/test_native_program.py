"""Models as programs without a runtime, called through the C interface of their library."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import request_for
from support.onnx_models import onnx_model
from support.source import ROOT

from edgekit.aot.native.write import NativeProgram
from edgekit.aot.operators import CallKernel
from edgekit.backends.offloading import compile_model
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.local.program import Program
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board

RANDOM = np.random.default_rng(8)
SOURCES = ROOT / "edgekit/aot/native/source"
C_LIBRARY = re.compile(r"@GLIBC_|^ *w (_ITM_|__gmon_start__|__cxa_finalize)")


def network(path: Path) -> Path:
    """A wide tensor that is divided by its own sum, and rows that an input chooses."""
    nodes = [
        helper.make_node("MatMul", ["x", "wide"], ["w"]),
        helper.make_node("Exp", ["w"], ["e"]),
        helper.make_node("ReduceSum", ["e", "axis"], ["s"]),
        helper.make_node("Div", ["e", "s"], ["d"]),
        helper.make_node("MatMul", ["d", "narrow"], ["y"]),
        helper.make_node("Cast", ["which"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["rows"]),
    ]
    weights = {
        "wide": RANDOM.standard_normal((16, 4096)).astype("float32") / 16,
        "narrow": RANDOM.standard_normal((4096, 8)).astype("float32"),
        "table": RANDOM.standard_normal((5, 3)).astype("float32"),
        "axis": np.array([1]),
    }
    onnx.save(onnx_model(nodes, {"x": [4, 16], "which": [2]}, ["y", "rows"], weights), path)
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("program")
    return build(request_for(network(folder / "model.onnx")), folder / "bundle").bundle


def given(bundle: Bundle) -> list[np.ndarray]:
    return [np.ascontiguousarray(array) for array in bundle.reference_inputs().values()]


def agrees(found: list[np.ndarray], bundle: Bundle) -> None:
    for one, wanted in zip(found, bundle.reference_outputs().values(), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


def test_the_library_needs_nothing_but_the_c_library_and_shows_its_interface_alone(
    bundle: Bundle,
) -> None:
    said = subprocess.run(
        ["nm", "-D", str(bundle.library)], capture_output=True, text=True, check=True
    ).stdout
    lines = [line[16:] for line in said.splitlines()]
    undefined = [line for line in lines if line.strip().startswith(("U ", "w "))]
    shown = {line.split()[1] for line in lines if line not in undefined}
    promised = set(re.findall(r"\b(edgekit_\w+)\(", (SOURCES / "edgekit.h").read_text()))

    assert undefined
    assert [line for line in undefined if not C_LIBRARY.search(line)] == []
    assert shown == {*promised, "__tvm_ffi_run"}


def test_a_tensor_that_only_its_own_step_reads_is_overwritten(tmp_path: Path) -> None:
    model = import_model(open_model(network(tmp_path / "model.onnx")))
    code = compile_model(model, load_board("local").target, linked=True).code

    assert isinstance(code, NativeProgram)
    assert code.arena.in_place
    assert code.arena.bytes < 2 * 4 * 4096 * 4, "the wide tensor once"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_numbers_are_right_on_any_number_of_threads(bundle: Bundle, threads: int) -> None:
    program = Program(str(bundle.library), threads, print)
    call = program.prepare(given(bundle))
    for _ in range(20):
        call()
        agrees(program.outputs(), bundle)
    assert program.threads == threads


def test_programs_of_one_library_run_at_the_same_time(bundle: Bundle) -> None:
    failures: list[BaseException] = []

    def work(factor: int) -> None:
        try:
            program = Program(str(bundle.library), 2, print)
            x, which = given(bundle)
            alone = Program(str(bundle.library), 1, print)
            alone.prepare([x * factor, which])()
            call = program.prepare([x * factor, which])
            for _ in range(50):
                call()
                for one, other in zip(program.outputs(), alone.outputs(), strict=True):
                    np.testing.assert_array_equal(one, other)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    workers = [threading.Thread(target=work, args=(factor,)) for factor in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_step_by_step_it_is_the_same_and_a_step_too_many_is_an_error(bundle: Bundle) -> None:
    program = Program(str(bundle.library), 1, print)
    program.profile(given(bundle), 2, 1, lambda done: None)
    agrees(program.outputs(), bundle)

    library = ctypes.CDLL(str(bundle.library))
    library.edgekit_create.restype = program_type = ctypes.c_void_p
    library.edgekit_run_step.argtypes = [program_type, ctypes.c_uint]
    made = library.edgekit_create(None, 1)
    assert library.edgekit_run_step(made, program._info.steps) == 2


def test_the_caller_may_give_the_memory(bundle: Bundle) -> None:
    library = ctypes.CDLL(str(bundle.library))
    library.edgekit_create.restype = ctypes.c_void_p
    library.edgekit_create.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.edgekit_input.restype = ctypes.c_void_p
    library.edgekit_input.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    size = Program(str(bundle.library), 1, print)._info.arena_bytes
    memory = ctypes.create_string_buffer(size + 64)
    start = -(-ctypes.addressof(memory) // 64) * 64

    made = library.edgekit_create(start, 1)

    assert start <= library.edgekit_input(made, 0) < start + size


def test_an_index_outside_is_an_error_in_words(bundle: Bundle) -> None:
    program = Program(str(bundle.library), 1, print)
    x, _ = given(bundle)
    with pytest.raises(RuntimeError, match=r"'index' holds the index 5, .*outside of -5 to 4"):
        program.prepare([x, np.array([0, 5], np.float32)])()


@pytest.mark.parametrize(
    "arrays",
    [
        [np.zeros((4, 15), np.float32), np.zeros(2, np.float32)],
        [np.zeros((4, 16), np.float64), np.zeros(2, np.float32)],
        [np.zeros((4, 16), np.float32)],
    ],
)
def test_inputs_that_would_be_read_beyond_their_end_are_refused(
    bundle: Bundle, arrays: list[np.ndarray]
) -> None:
    with pytest.raises(ValueError, match="not"):
        Program(str(bundle.library), 1, print).prepare(arrays)


@pytest.mark.parametrize("checks", ["thread", "address,undefined"])
def test_threads_share_nothing_by_accident(checks: str, tmp_path: Path) -> None:
    stress = Path(__file__).parent / "threads_stress.c"
    program = tmp_path / "stress"
    options = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-fsanitize={checks}", f"-I{SOURCES}"]
    files = [str(stress), str(SOURCES / "threads.c")]
    subprocess.run(["gcc", *options, *files, "-o", str(program), "-pthread"], check=True)

    said = subprocess.run([program], capture_output=True, text=True, check=False)

    assert (said.returncode, said.stdout) == (0, "0\n"), said.stderr


def layers_of(path: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the layers of each step, and the kernel of each call of one."""
    code = compile_model(
        import_model(open_model(path)), load_board("local").target, linked=True
    ).code
    assert isinstance(code, NativeProgram)
    calls = [step.operator for step in code.program.steps]
    kernels = [call.kernel for call in calls if isinstance(call, CallKernel)]
    return [step.layers for step in code.program.steps], kernels


def test_equal_layers_share_a_kernel_and_keep_their_names(tmp_path: Path) -> None:
    weights = {f"{word}{k}": array for k in (0, 1) for word, array in a_layer().items()}
    tensors = ["x", "y0", "y1"]
    nodes = [
        node
        for k in (0, 1)
        for node in (
            helper.make_node("MatMul", [tensors[k], f"w{k}"], [f"m{k}"], name=f"/{k}/MatMul"),
            helper.make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"], name=f"/{k}/Add"),
            helper.make_node("Relu", [f"a{k}"], [f"y{k}"], name=f"/{k}/Relu"),
        )
    ]
    onnx.save(onnx_model(nodes, {"x": [4, 16]}, ["y1"], weights), tmp_path / "two.onnx")

    layers, kernels = layers_of(tmp_path / "two.onnx")

    assert layers == [(f"/{k}/MatMul", f"/{k}/Add", f"/{k}/Relu") for k in (0, 1)]
    assert len(kernels) == 2 and len(set(kernels)) == 1


def a_layer() -> dict[str, np.ndarray]:
    return {
        "w": RANDOM.standard_normal((16, 16)).astype("float32"),
        "b": RANDOM.standard_normal(16).astype("float32"),
    }


def images(path: Path) -> Path:
    """Blocks of depthwise and pointwise convolutions with batch norm, pooling and a classifier."""
    weights: dict[str, np.ndarray] = {"out": RANDOM.standard_normal((8, 5)).astype("float32")}
    nodes, tensor = [], "x"
    for k, (kernel, group) in enumerate(((3, 1), (3, 8), (1, 1), (3, 8), (1, 1))):
        shape = (8, (3 if k == 0 else 8) // group, kernel, kernel)
        weights[f"w{k}"] = RANDOM.standard_normal(shape).astype("float32")
        for word in ("scale", "shift", "mean", "variance"):
            weights[f"{word}{k}"] = RANDOM.uniform(0.5, 1, 8).astype("float32")
        pads = [kernel // 2] * 4
        normal = [f"c{k}", f"scale{k}", f"shift{k}", f"mean{k}", f"variance{k}"]
        convolution = helper.make_node(
            "Conv", [tensor, f"w{k}"], [f"c{k}"], f"/{k}/Conv", group=group, pads=pads
        )
        nodes += [
            convolution,
            helper.make_node("BatchNormalization", normal, [f"n{k}"], f"/{k}/Norm"),
            helper.make_node("Relu", [f"n{k}"], [f"r{k}"], f"/{k}/Relu"),
        ]
        tensor = f"r{k}"
    nodes += [
        helper.make_node("GlobalAveragePool", [tensor], ["p"], "/pool"),
        helper.make_node("Flatten", ["p"], ["f"], "/flatten"),
        helper.make_node("MatMul", ["f", "out"], ["y"], "/classifier"),
    ]
    onnx.save(onnx_model(nodes, {"x": [1, 3, 16, 16]}, ["y"], weights), path)
    return path


def words(path: Path) -> Path:
    """Two blocks of attention, layer norm and a gated product, each after a residual."""
    weights: dict[str, np.ndarray] = {"half": np.array(0.25, np.float32)}
    nodes, tensor = [], "x"
    for k in (0, 1):
        for word in "qkvo":
            weights[f"{word}{k}w"] = RANDOM.standard_normal((16, 16)).astype("float32") / 4
            if word != "o":
                given = [tensor, f"{word}{k}w"]
                nodes.append(helper.make_node("MatMul", given, [f"{word}{k}"], f"/{k}/{word}"))
        weights[f"one{k}"] = np.ones(16, np.float32)
        nodes += [
            helper.make_node("Transpose", [f"k{k}"], [f"t{k}"], f"/{k}/turn", perm=[0, 2, 1]),
            helper.make_node("MatMul", [f"q{k}", f"t{k}"], [f"s{k}"], f"/{k}/scores"),
            helper.make_node("Mul", [f"s{k}", "half"], [f"h{k}"], f"/{k}/scale"),
            helper.make_node("Softmax", [f"h{k}"], [f"a{k}"], f"/{k}/softmax"),
            helper.make_node("MatMul", [f"a{k}", f"v{k}"], [f"c{k}"], f"/{k}/context"),
            helper.make_node("MatMul", [f"c{k}", f"o{k}w"], [f"p{k}"], f"/{k}/o"),
            helper.make_node("Add", [tensor, f"p{k}"], [f"r{k}"], f"/{k}/residual"),
            helper.make_node(
                "LayerNormalization", [f"r{k}", f"one{k}", f"one{k}"], [f"n{k}"], f"/{k}/norm"
            ),
            helper.make_node("Sigmoid", [f"n{k}"], [f"g{k}"], f"/{k}/sigmoid"),
        ]
        tensor = f"g{k}"
    model = onnx_model(nodes, {"x": [1, 6, 16]}, [tensor], weights)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("network", [images, words])
def test_every_step_names_nodes_of_the_model(
    network: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = network(tmp_path / "model.onnx")
    nodes = {node.name for node in onnx.load(path).graph.node}

    layers, _ = layers_of(path)

    assert layers
    assert [step for step in layers if not step or not set(step) <= nodes] == []
