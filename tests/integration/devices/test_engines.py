"""A model as a module of WebAssembly computes in each engine what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import processes_with, request_for, write_model
from support.local_bundles import copied, resealed
from support.loop_models import recurrent
from support.needs import needs
from support.on_device import run_on
from support.onnx_models import onnx_model
from support.quantised_onnx import quantised_depthwise, quantised_product
from support.rpc_lab import eventually

from edgekit.base.errors import BundleError, DeviceError, UsageError
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.choice import device_for
from edgekit.devices.local.device import LocalDevice
from edgekit.profiles.board import load_board
from edgekit.verbs.bench import bench
from edgekit.verbs.verify import verify

pytestmark = needs("zig", "wasmtime", "nodejs")

BOARD = "wasm32-wasi"
ENGINES = ("wasmtime", "node")
QUICK = BenchPlan(warmup=1, runs=5, seconds=0.0, profiled=2)
TYPES = (
    *("FLOAT", "DOUBLE", "FLOAT16", "INT8", "INT16", "INT32", "INT64"),
    *("UINT8", "UINT16", "UINT32", "UINT64", "BOOL"),
)


def built(model: onnx.ModelProto | Path, folder: Path) -> Bundle:
    if not isinstance(model, Path):
        onnx.save(model, folder / "model.onnx")
        model = folder / "model.onnx"
    return build(request_for(model, BOARD), folder / "bundle", isolated=False).bundle


def every_type() -> onnx.ModelProto:
    """An input and an output of each type; half of the tensors have no elements."""
    names = [kind.lower() for kind in TYPES]
    shapes = [(2, 3) if place % 2 else (0, 4) for place in range(len(names))]
    graph = helper.make_graph(
        [helper.make_node("Transpose", [name], [f"{name}_turned"]) for name in names],
        "types",
        [
            helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
            for name, kind, shape in zip(names, TYPES, shapes, strict=True)
        ],
        [
            helper.make_tensor_value_info(f"{name}_turned", getattr(TensorProto, kind), shape[::-1])
            for name, kind, shape in zip(names, TYPES, shapes, strict=True)
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def half_precision() -> onnx.ModelProto:
    """Arithmetic in float16, for whose vectors LLVM has no instructions of WebAssembly."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Mul", ["y", "x"], ["z"])],
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (4, 16))],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT16, (4, 16))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rows_by_number() -> onnx.ModelProto:
    """Rows of a table, by indices that the caller gives."""
    nodes = [
        helper.make_node("Cast", ["which"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["rows"], name="/lookup"),
    ]
    table = np.arange(12, dtype="float32").reshape(6, 2)
    return onnx_model(nodes, {"which": [3]}, ["rows"], {"table": table})


MODELS = {
    "types": every_type,
    "half precision": half_precision,
    "product in int8": quantised_product,
    "depthwise in int8": lambda: quantised_depthwise((3, 3), [1, 1, 1, 1]),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("module")
    return built(write_model(folder / "model.onnx"), folder)


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built(recurrent(7, 2, 6, lengths=True), tmp_path_factory.mktemp("loops"))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_verifies_and_measures_as_a_board_does(engine: str, bundle: Bundle) -> None:
    device = device_for(load_board(BOARD), engine)

    verified = verify(bundle, device)
    measured = bench(bundle, device, QUICK)

    assert verified.passed
    assert len(verified.samples) > 1
    assert measured.measured_by == verified.measured_by == "engine"
    assert measured.device == engine
    assert measured.runs >= QUICK.runs
    assert measured.threads == 1
    assert measured.profile is not None
    assert {kernel.name for kernel in measured.profile.kernels} == {"sum", "features"}
    assert measured.memory.model_peak is not None
    assert measured.memory.model_peak < 4 << 20, "the module's memory, not the engine's compiler"
    assert any("on another machine" in note for note in measured.notes)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_of_steps_gives_the_oracles_numbers(engine: str, loops: Bundle) -> None:
    found = run_on(device_for(load_board(BOARD), engine), loops)

    for name, expected in loops.reference_outputs().items():
        np.testing.assert_allclose(found.outputs[name], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_each_engine_gives_the_oracles_numbers(name: str, tmp_path: Path) -> None:
    made = built(MODELS[name](), tmp_path)

    for engine in ENGINES:
        assert verify(made, device_for(load_board(BOARD), engine)).passed


def test_the_module_needs_nothing_of_its_engine(bundle: Bundle) -> None:
    import wasmtime

    module = wasmtime.Module.from_file(wasmtime.Engine(), str(bundle.library))

    assert bundle.library.name == "model.wasm"
    assert not module.imports
    assert {export.name for export in module.exports} >= {"memory", "edgekit_run"}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_outside_of_its_tensor_is_one_sentence(engine: str, tmp_path: Path) -> None:
    made = built(rows_by_number(), tmp_path)
    device = device_for(load_board(BOARD), engine)

    found = run_on(device, made, {"which": np.array([5, 0, 1], "float32")})
    with pytest.raises(
        DeviceError, match="holds the index 6, which is outside of -6 to 5"
    ) as caught:
        run_on(device, made, {"which": np.array([6, 0, 1], "float32")})

    np.testing.assert_array_equal(found.outputs["rows"], [[10, 11], [0, 1], [2, 3]])
    assert caught.value.hint


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_that_never_ends_is_killed(
    engine: str, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wasmtime

    monkeypatch.setenv("OF_THIS_TEST", str(tmp_path))

    folder = copied(bundle, tmp_path / "forever")
    (folder / "model.wasm").write_bytes(
        wasmtime.wat2wasm(
            '(module (memory (export "memory") 1)'
            ' (func (export "edgekit_model_info") (result i32) (loop (br 0)) (i32.const 0))'
            ' (func (export "edgekit_run") (param i32 i32 i32) (result i32) (i32.const 0))'
            ' (func (export "edgekit_run_step") (param i32 i32) (result i32) (i32.const 0))'
            ' (func (export "_initialize")))'
        )
    )
    endless = resealed(bundle, folder)

    with pytest.raises(DeviceError, match="gave no sign of life") as caught:
        run_on(device_for(load_board(BOARD), engine, timeout=4), endless)

    assert caught.value.hint
    eventually(lambda: not processes_with(str(tmp_path)))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_module_is_refused(engine: str, bundle: Bundle, tmp_path: Path) -> None:
    device = device_for(load_board(BOARD), engine)
    other = copied(bundle, tmp_path / "other")
    (other / "model.wasm").write_bytes(b"\x7fELF" + bytes(60))
    damaged = copied(bundle, tmp_path / "damaged")
    (damaged / "model.wasm").write_bytes(bundle.library.read_bytes()[:-100])

    with pytest.raises(BundleError, match="no module of WebAssembly"):
        run_on(device, resealed(bundle, other))
    with pytest.raises(DeviceError, match=f"failed on {engine} while loading"):
        run_on(device, resealed(bundle, damaged))


def test_a_module_runs_in_engines_of_its_board_alone(bundle: Bundle) -> None:
    with pytest.raises(DeviceError, match="whose code does not run on this machine"):
        run_on(LocalDevice(), bundle)
    with pytest.raises(UsageError, match="has no engine 'wasmtme'") as caught:
        device_for(load_board(BOARD), "wasmtme")
    with pytest.raises(UsageError, match="has no twin"):
        device_for(load_board(BOARD), twin=True)

    assert "wasmtime" in caught.value.hint
