"""Oracles: independent of TVM, optional, blamed by name when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.needs import import_needed
from support.tflite_models import Op, T, tflite_bytes, write_model

from edgekit.base.errors import MissingToolError, ModelError
from edgekit.models.model import ModelSource, open_model
from edgekit.models.oracle import LiteRtOracle, oracle_for
from edgekit.models.oracle_process import ChildOracle, in_this_process

torch = import_needed("torch")

X = np.array([[-1.0, 0.0, 0.5, 3.0]], "float32")


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": x + y, "product": x * y}


def torch_source(folder: Path) -> ModelSource:
    path = folder / "twice.pt2"
    program = torch.export.export(Twice(), (torch.zeros(1, 4),), {"y": torch.zeros(1, 4)})
    torch.export.save(program, path)
    return open_model(path)


def onnx_source(folder: Path, operator: str = "Add") -> ModelSource:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "y"], ["z"])],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "add.onnx"
    onnx.save(model, path)
    return open_model(path, {"x": (1, 4), "y": (1, 4)})


def tflite_source(folder: Path) -> ModelSource:
    content = tflite_bytes(
        [T("x", (1, 4)), T("y", (1, 4)), T("z", (1, 4))],
        [Op("ADD", ("x", "y"), ("z",), {"table": "AddOptions"})],
        ["x", "y"],
        ["z"],
    )
    return write_model(folder, content)


@pytest.mark.parametrize("make", [onnx_source, tflite_source], ids=["onnx", "tflite"])
def test_an_oracle_adds(make: object, tmp_path: Path) -> None:
    assert callable(make)
    oracle = oracle_for(make(tmp_path))
    np.testing.assert_array_equal(oracle.run({"x": X, "y": X})["z"], 2 * X)
    assert oracle.name
    assert oracle.version[0].isdigit()


def test_torch_takes_keyword_inputs_and_names_each_output(tmp_path: Path) -> None:
    oracle = oracle_for(torch_source(tmp_path))
    outputs = oracle.run({"x": X, "y": X + 1})
    np.testing.assert_allclose(outputs["add"], 2 * X + 1)
    np.testing.assert_allclose(outputs["mul"], X * (X + 1))


def test_constants_are_fed_as_inputs(tmp_path: Path) -> None:
    source = replace(onnx_source(tmp_path), constants={"y": X + 1})
    np.testing.assert_array_equal(oracle_for(source).run({"x": X})["z"], 2 * X + 1)


def test_operators_without_a_reference_kernel_run_on_litert_all_the_same(tmp_path: Path) -> None:
    content = tflite_bytes(
        [T("x", (1, 4)), T("y", (1, 4))], [Op("CEIL", ("x",), ("y",))], ["x"], ["y"]
    )
    outputs = oracle_for(write_model(tmp_path, content)).run({"x": X})
    np.testing.assert_array_equal(outputs["y"], np.ceil(X))


def test_torch_takes_a_scalar_as_one(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, torch.stack([factor])])

    program = torch.export.export(Scaled(), (torch.zeros(2), torch.tensor(3.0)))
    torch.export.save(program, tmp_path / "scaled.pt2")
    oracle = oracle_for(open_model(tmp_path / "scaled.pt2"))
    inputs = {"x": np.array([1, 2], "float32"), "factor": np.array(5, "float32")}
    (result,) = oracle.run(inputs).values()
    assert result.tolist() == [1, 2, 5]


@pytest.mark.parametrize("make", [onnx_source, tflite_source, torch_source])
def test_each_run_is_timed(make: object, tmp_path: Path) -> None:
    assert callable(make)
    seconds = oracle_for(make(tmp_path)).time({"x": X, "y": X}, threads=1, runs=7)
    assert len(seconds) == 7
    assert all(value > 0 for value in seconds)


def test_a_failing_oracle_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"onnxruntime \d.* cannot run the model: .*NoSuchOperator"
    ):
        oracle_for(onnx_source(tmp_path, "NoSuchOperator"))


def test_wrong_inputs_are_the_oracles_to_report(tmp_path: Path) -> None:
    oracle = oracle_for(tflite_source(tmp_path))
    with pytest.raises(ModelError, match="LiteRT"):
        oracle.run({"x": X.astype("float64"), "y": X})


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (onnx_source, "onnxruntime", "onnx"),
        (tflite_source, "ai_edge_litert", "tflite"),
        (torch_source, "torch", "torch"),
    ],
)
def test_a_missing_package_says_what_to_install(
    make: object, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(make)
    source = make(tmp_path)
    for name in list(sys.modules):
        if name == module or name.startswith(f"{module}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingToolError) as caught:
        oracle_for(source, in_this_process)
    assert caught.value.hint == f"pip install 'edgekit[{extra}]'"


class Faulty(LiteRtOracle):
    """One that crashes where an input begins with 13."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if inputs["x"].flat[0] == 13:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().run(inputs)


def test_a_crash_of_an_oracle_is_an_error_of_one_run(tmp_path: Path) -> None:
    oracle = ChildOracle(Faulty, tflite_source(tmp_path))
    other = oracle_for(onnx_source(tmp_path))

    with pytest.raises(ModelError, match=r"LiteRT \d.* crashed while it ran the model: SIGSEGV"):
        oracle.run({"x": np.full_like(X, 13), "y": X})

    for each in (oracle, other):
        np.testing.assert_array_equal(each.run({"x": X, "y": X})["z"], 2 * X)


@pytest.mark.parametrize(
    ("operator", "dtype", "signal"),
    [("RSQRT", "int16", "ran the model: SIGSEGV"), ("ADD", "int8", "opened the model: SIGABRT")],
)
def test_litert_crashes_in_its_own_process(
    operator: str, dtype: str, signal: str, tmp_path: Path
) -> None:
    """It takes small integers for quantised ones, and reads their scale."""
    inputs = ["x"] if operator == "RSQRT" else ["x", "x"]
    content = tflite_bytes(
        [T("x", (1, 4), dtype), T("z", (1, 4), dtype)],
        [Op(operator, tuple(inputs), ("z",))],
        ["x"],
        ["z"],
    )

    with pytest.raises(ModelError, match=f"LiteRT .*crashed while it {signal}"):
        oracle_for(write_model(tmp_path, content)).run({"x": np.array([[1, 2, 3, 4]], dtype)})


def test_threads_share_the_oracles_process(tmp_path: Path) -> None:
    """One that ends does not end the process for the others, and an answer goes where it was
    asked for."""
    oracles = [oracle_for(onnx_source(tmp_path)), oracle_for(tflite_source(tmp_path))]
    found: dict[int, np.ndarray] = {}

    def add(number: int) -> None:
        found[number] = oracles[number % 2].run({"x": X + number, "y": X})["z"]

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    add(12)

    for number, sums in found.items():
        np.testing.assert_array_equal(sums, 2 * X + number)
    assert len(found) == 13


def test_onnxruntime_reports_nothing_about_its_user(tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for folder in (home, temporary):
        folder.mkdir()
    onnx_source(tmp_path)
    program = (
        "import sys; from pathlib import Path; import numpy as np;"
        "from edgekit.models.model import open_model; from edgekit.models.oracle import oracle_for;"
        "x = np.zeros((1, 4), 'float32');"
        "source = open_model(Path(sys.argv[1]), {'x': (1, 4), 'y': (1, 4)});"
        "oracle_for(source).run({'x': x, 'y': x})"
    )
    ours = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    environment = {**kept, "HOME": str(home), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", program, str(tmp_path / "add.onnx")]
    subprocess.run(command, env=environment, check=True)
    assert not [*home.rglob("*"), *temporary.rglob("*")]


def test_importing_the_module_imports_no_runtime() -> None:
    code = (
        "import sys, edgekit.models.oracle; "
        "print([m for m in ('onnxruntime', 'ai_edge_litert', 'torch', 'tvm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("operator", ["Add", "Swish"])
def test_a_constant_takes_the_type_that_the_model_declares(operator: str, tmp_path: Path) -> None:
    """A user writes 3 for a float; onnxruntime, and the evaluator where it can't, take a float."""
    path = onnx_source(tmp_path).path
    if operator == "Swish":  # of a version that onnxruntime has no kernels for
        model = onnx.load(path)
        model.opset_import[0].version = 24
        model.graph.node.append(helper.make_node("Swish", ["z"], ["w"]))
        model.graph.output[0].name = "w"
        onnx.save(model, path)
    source = open_model(path, {"x": (1, 4)}, {"y": np.array([[1, 2, 3, 4]], "int64")})
    (found,) = oracle_for(source).run({"x": X}).values()
    total = X + np.array([[1, 2, 3, 4]])
    wanted = total if operator == "Add" else total / (1 + np.exp(-total))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
