"""Large weights stay in the library's file on every runtime; small ones stay with TVM."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import environment, request_for
from support.emulated_arm import arm_emulator
from support.local_bundles import built_for_machine
from support.needs import ARM_PROGRAMS, needs
from support.on_device import run_on
from support.onnx_models import onnx_model

from edgekit.agent.build import build_agent, build_runtime
from edgekit.backends.offloading import compile_model
from edgekit.base.tvm_compat import load_tvm
from edgekit.building.build import build
from edgekit.building.request import BuildResult
from edgekit.bundle.folder import Bundle
from edgekit.cross.link import Linker, export_objects, link_shared_library
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.toolchain import Compiler, find_compiler, find_cxx_compiler
from edgekit.cross.weights import LEAST_BYTES, Weight, write_weights
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.cpu import this_cpu
from edgekit.profiles.toolchain import Toolchain, load_toolchain

RANDOM = np.random.default_rng(3)
LARGE = RANDOM.standard_normal((2048, 4096)).astype("float32") / 64
"""32 MiB."""

MEMORY_OF_A_START = """
import ctypes, json, re, sys
from pathlib import Path

def own():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

before = own()
library = ctypes.CDLL(sys.argv[1])
library.edgekit_create.restype = ctypes.c_void_p
assert library.edgekit_create(None, 1)
print(json.dumps(own() - before))
"""

STOCK_CLIENT = """
import sys
import numpy as np
import tvm
from tvm import relax, rpc

library, given, wanted, port = sys.argv[1:]
inputs, outputs = np.load(given), np.load(wanted)

def agrees(module, device):
    machine = relax.VirtualMachine(module, device)
    answer = machine["main"](tvm.runtime.tensor(inputs, device)).numpy()
    np.testing.assert_allclose(answer, outputs, rtol=1e-4, atol=1e-4)

agrees(tvm.runtime.load_module(library), tvm.cpu())
remote = rpc.connect("127.0.0.1", int(port), key="desk")
remote.upload(library)
agrees(remote.load_module("model.so"), remote.cpu())
"""


def write_network(path: Path) -> Path:
    """A convolution and a dense layer of 32 MiB, of which another layer takes the same again."""
    filters = RANDOM.standard_normal((32, 3, 5, 5)).astype("float32") / 8
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["c"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["d"]),
        helper.make_node("Softmax", ["d"], ["s"]),
        helper.make_node("Slice", ["s", "starts", "ends", "axes"], ["half"]),
        helper.make_node("MatMul", ["half", "same"], ["y"]),
    ]
    weights = {
        "filters": filters,
        "dense": LARGE,
        "same": LARGE.copy(),
        "starts": np.array([0]),
        "ends": np.array([2048]),
        "axes": np.array([1]),
    }
    onnx.save(onnx_model(nodes, {"image": [1, 3, 8, 8]}, ["y"], weights), path)
    return path


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    folder = tmp_path_factory.mktemp("mapped")
    request = request_for(write_network(folder / "model.onnx"))
    return build(request, folder / "bundle", use_cache=False, isolated=False)


@pytest.fixture(scope="module")
def bundle(result: BuildResult) -> Bundle:
    return result.bundle


def library_of(bundle: Bundle) -> Path:
    return bundle.path / "model.so"


def test_equal_weights_are_in_the_library_once(bundle: Bundle) -> None:
    size = library_of(bundle).stat().st_size

    assert LARGE.nbytes < size < LARGE.nbytes + (1 << 20)


def test_a_build_says_how_much_of_the_library_weights_are(result: BuildResult) -> None:
    filters = 32 * 3 * 5 * 5 * 4

    assert result.weight_bytes == filters + LARGE.nbytes


def test_a_start_copies_no_weights(bundle: Bundle) -> None:
    said = subprocess.run(
        [sys.executable, "-c", MEMORY_OF_A_START, str(library_of(bundle))],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout

    assert json.loads(said) < LARGE.nbytes // 8


def test_this_machine_computes_with_mapped_weights(bundle: Bundle) -> None:
    answer = run_on(LocalDevice(), bundle).outputs["y"]

    np.testing.assert_allclose(answer, bundle.reference_outputs()["y"], rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def for_machine(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        return built_for_machine(write_network(folder / "model.onnx"), folder / "bundle", patch)


def test_stock_clients_load_a_library_for_tvms_machine_here_and_over_rpc(
    for_machine: Bundle, tmp_path: Path
) -> None:
    program = build_runtime(load_toolchain("host"), platform.machine()).program
    command = [str(program), "serve", "--key", "desk", "--workspace", str(tmp_path)]
    vector = for_machine.path / "reference" / "random"
    given, wanted = (vector / f"{end}-0.npy" for end in ("input", "output"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            subprocess.run(
                [
                    sys.executable,
                    "-c",
                    STOCK_CLIENT,
                    library_of(for_machine),
                    given,
                    wanted,
                    str(port),
                ],
                env=environment(),
                check=True,
            )
        finally:
            server.kill()


@needs(*ARM_PROGRAMS)
def test_the_agent_computes_with_mapped_weights_on_another_architecture(tmp_path: Path) -> None:
    request = request_for(write_network(tmp_path / "model.onnx"), "rpi4")
    built = build(request, tmp_path / "bundle", use_cache=False, isolated=False).bundle
    agent = build_agent(load_toolchain("aarch64-linux-gnu"), "aarch64").program
    sample = tmp_path / "sample"
    sample.mkdir()
    shutil.copy(built.path / "reference" / "random" / "input-0.npy", sample)

    command = [arm_emulator(), "-L", "/usr/aarch64-linux-gnu", str(agent), "run"]
    subprocess.run([*command, str(library_of(built)), str(sample)], check=True, capture_output=True)

    answer = np.load(sample / "output-0.npy")
    np.testing.assert_allclose(answer, built.reference_outputs()["y"], rtol=1e-4, atol=1e-4)


@dataclass(frozen=True)
class Linked:
    weights: tuple[Weight, ...]
    main: Callable[..., Any]


def linked(
    module: Any, folder: Path, driver: Callable[[Toolchain], Compiler] = find_compiler
) -> Linked:
    """A Relax module through the compiler and one of the host's linkers, and loaded."""
    tvm = load_tvm()
    from edgekit.profiles.board import load_board

    target = this_cpu()[1]
    source = ModelSource(Path("test.onnx"), "onnx", "0" * 64)
    compiled = compile_model(
        Model(source, module, (), (), ()), target, linked=True, with_runtime=True
    )
    objects = export_objects(compiled.code.executable, target.triple, folder)
    objects = objects.with_sources(write_weights(compiled.code.weights, folder), ffi_headers())
    toolchain = load_toolchain("host")
    linker = Linker.for_board(load_board("local"), toolchain, driver(toolchain))
    link_shared_library(objects, linker, folder, folder / "linked.so")
    library = tvm.runtime.load_module(str(folder / "linked.so"))
    return Linked(compiled.code.weights, tvm.relax.VirtualMachine(library, tvm.cpu())["main"])


def rows_of(table: np.ndarray) -> Any:
    """A module that looks rows of `table` up."""
    load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    which_rows = relax.Var("rows", relax.TensorType((4,), "int64"))
    with builder.function("main", [which_rows]):
        with builder.dataflow():
            constant = relax.const(table, table.dtype.name)
            found = builder.emit_output(relax.op.take(constant, which_rows, axis=0))
        builder.emit_func_output(found)
    return builder.get()


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ],
)
def test_weights_of_every_type_are_mapped(dtype: str, tmp_path: Path) -> None:
    tvm = load_tvm()
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    table = RANDOM.integers(0, 2 if dtype == "bool" else 100, (64, 3, 50)).astype(kind)

    model = linked(rows_of(table), tmp_path)

    assert [weight.shape for weight in model.weights] == [table.shape]
    rows = np.array([3, 63, 0, 3])
    answer = model.main(tvm.runtime.tensor(rows)).numpy()
    np.testing.assert_array_equal(answer, table[rows])


def test_weights_are_found_where_a_cxx_compiler_links_as_it_does_beside_regions(
    tmp_path: Path,
) -> None:
    tvm = load_tvm()
    table = RANDOM.standard_normal((64, 50)).astype("float32")

    model = linked(rows_of(table), tmp_path, find_cxx_compiler)

    rows = np.array([3, 63, 0, 3])
    np.testing.assert_array_equal(model.main(tvm.runtime.tensor(rows)).numpy(), table[rows])


def test_a_small_constant_stays_with_the_program(tmp_path: Path) -> None:
    largest_small = np.zeros((LEAST_BYTES // 4 - 1, 1), "float32")

    assert not linked(rows_of(largest_small), tmp_path).weights


def test_a_constant_that_the_caller_gets_may_be_written_to_and_is_not_mapped(
    tmp_path: Path,
) -> None:
    tvm = load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(LARGE.shape, "float32"))
    constant = relax.const(LARGE)
    with builder.function("main", [x]):
        with builder.dataflow():
            total = builder.emit_output(relax.op.add(x, constant))
        builder.emit_func_output(relax.Tuple([total, constant]))

    model = linked(builder.get(), tmp_path)

    zeros = tvm.runtime.tensor(np.zeros_like(LARGE))
    total, given = model.main(zeros)
    np.testing.assert_array_equal(given.numpy(), LARGE)
    given.copyfrom(np.ones_like(LARGE))
    np.testing.assert_array_equal(model.main(zeros)[0].numpy(), LARGE)


def test_weights_inside_a_branch_are_mapped(tmp_path: Path) -> None:
    tvm = load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32"))
    flag = relax.Var("flag", relax.TensorType((), "bool"))
    weights = RANDOM.standard_normal((64, 64)).astype("float32")
    with builder.function("main", [x, flag]):
        chosen = builder.emit(
            relax.If(
                flag,
                relax.SeqExpr([], relax.op.add(x, relax.const(weights))),
                relax.SeqExpr([], relax.op.multiply(x, relax.const(weights * 2))),
            )
        )
        builder.emit_func_output(chosen)
    module = relax.transform.Normalize()(builder.get())

    model = linked(module, tmp_path)

    assert len(model.weights) == 2
    ones = tvm.runtime.tensor(np.ones((64, 64), "float32"))
    for flag_value, expected in ((True, 1 + weights), (False, weights * 2)):
        answer = model.main(ones, tvm.runtime.tensor(np.array(flag_value))).numpy()
        np.testing.assert_array_equal(answer, expected)


def test_what_a_stranger_asks_for_is_not_given(for_machine: Bundle) -> None:
    """Numbers outside of the table, and arguments that are no numbers."""
    tvm = load_tvm()
    library = tvm.runtime.load_module(str(library_of(for_machine)))
    ask = library.get_function("edgekit_weight", True)

    assert ask(0) is not None
    for stranger in ((2,), (-1,), (1 << 40,), ("0",), (), (0, 0)):
        assert ask(*stranger) is None
