"""Models as programs without a runtime, called through the C interface of their library."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import request_for
from support.onnx_models import onnx_model
from support.source import ROOT

from edgekit.aot.native.write import NativeProgram
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
    steps = program.profile(given(bundle), 2, lambda done: None)
    agrees(program.outputs(), bundle)

    library = ctypes.CDLL(str(bundle.library))
    library.edgekit_create.restype = program_type = ctypes.c_void_p
    library.edgekit_run_step.argtypes = [program_type, ctypes.c_uint]
    made = library.edgekit_create(None, 1)
    assert library.edgekit_run_step(made, len(steps)) == 2


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
