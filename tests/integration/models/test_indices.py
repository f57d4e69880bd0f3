"""An index outside of a tensor is an error that names both, and never a wrong number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import request_for
from support.c_builds import SANITIZED, built_tree, run
from support.needs import needs
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.base.errors import DeviceError, ModelError
from edgekit.building.build import build
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import ModelSource, import_model, open_model
from edgekit.models.oracle import oracle_for

RANDOM = np.random.default_rng(11)
DATA = RANDOM.standard_normal((5, 4)).astype("float32")
LARGEST = 2**40
INTEGERS = {"int32": TensorProto.INT32, "int64": TensorProto.INT64}


def onnx_file(
    folder: Path, node: Any, indices: tuple[int, ...], *, known: Any = None, kind: str = "int64"
) -> ModelSource:
    """One node of `data`, `i` and, where it takes them, `updates` as long as `i`."""
    names = list(node.input)
    floats = [helper.make_tensor_value_info("data", TensorProto.FLOAT, DATA.shape)]
    if "updates" in names:
        shape = indices[:-1] if node.op_type == "ScatterND" else indices
        floats.append(helper.make_tensor_value_info("updates", TensorProto.FLOAT, shape))
    given = (
        [] if known is not None else [helper.make_tensor_value_info("i", INTEGERS[kind], indices)]
    )
    graph = helper.make_graph(
        [node],
        "test",
        [*floats, *given],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [] if known is None else [onnx.numpy_helper.from_array(np.array(known), "i")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return open_model(path)


def nodes() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Each with the shape of its indices."""

    def node(kind: str, *inputs: str, **more: Any) -> Any:
        return helper.make_node(kind, list(inputs), ["y"], name="the_node", **more)

    return {
        "Gather": (node("Gather", "data", "i", axis=1), (3,)),
        "GatherElements": (node("GatherElements", "data", "i", axis=0), (3, 4)),
        "GatherND": (node("GatherND", "data", "i"), (3, 2)),
        "ScatterElements": (node("ScatterElements", "data", "i", "updates", axis=0), (2, 4)),
        "ScatterND": (node("ScatterND", "data", "i", "updates"), (3, 2)),
    }


def feeds_for(name: str, indices: np.ndarray) -> dict[str, np.ndarray]:
    feeds = {"data": DATA, "i": indices}
    if name.startswith("Scatter"):
        shape = indices.shape[:-1] if name == "ScatterND" else indices.shape
        feeds["updates"] = RANDOM.standard_normal(shape).astype("float32")
    return feeds


def distinct(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Indices from both ends, none for one place twice."""
    if name.endswith("ND"):
        return np.array([[-1, 0], [0, -4], [2, 3]])
    if name == "Gather":
        return np.array([-1, 3, -4])
    return np.stack([RANDOM.permutation(5)[: shape[0]] for _ in range(shape[1])], 1) - 5


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "int64") for name in nodes()),
        *((name, "int32") for name in nodes() if not name.endswith("ND")),
    ],
)
def test_onnx_counts_from_the_end_and_no_further(name: str, kind: str, tmp_path: Path) -> None:
    node, shape = nodes()[name]
    source = onnx_file(tmp_path, node, shape, kind=kind)
    indices = distinct(name, shape).astype(kind)
    ours = compiled(source)
    check(source, ours, feeds_for(name, indices))
    for value in (-6, 5, np.iinfo(kind).max, np.iinfo(kind).min):
        wrong = indices.copy()
        wrong.reshape(-1)[-2 if name.endswith("ND") else -1] = value
        with pytest.raises(IndexError, match=f"'i' holds the index {value}, which is outside of"):
            ours(feeds_for(name, wrong))


@dataclass(frozen=True)
class Ours:
    """A compiled model, to be called without the oracle: a wrong index may take that along."""

    machine: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import tvm

        result = self.machine["main"](*(tvm.runtime.tensor(feeds[name]) for name in self.inputs))
        values = [result] if hasattr(result, "numpy") else list(result)
        return {name: v.numpy() for name, v in zip(self.outputs, values, strict=True)}


def compiled(source: ModelSource) -> Ours:
    import tvm
    from tvm import relax

    from edgekit.backends.offloading import compile_model
    from edgekit.profiles.board import load_board

    model = import_model(source)
    executable = compile_model(model, load_board("local").target).code.executable
    names = (tuple(spec.name for spec in specs) for specs in (model.inputs, model.outputs))
    return Ours(relax.VirtualMachine(executable, tvm.cpu()), *names)


def check(source: ModelSource, ours: Ours, feeds: Mapping[str, np.ndarray]) -> None:
    found, expected = ours(feeds), oracle_for(source).run(feeds)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("name", nodes())
def test_constant_indices_are_checked_when_a_model_is_read(name: str, tmp_path: Path) -> None:
    node, shape = nodes()[name]
    wrong = distinct(name, shape)
    wrong.reshape(-1)[0] = 77
    source = onnx_file(tmp_path, node, shape, known=wrong)
    with pytest.raises(ModelError, match="holds the index 77, which is outside of -"):
        import_model(source)


def tflite_gather(kind: str, indices: T, name: str = "GATHER") -> bytes:
    options = {"table": "GatherOptions", "axis": 0} if name == "GATHER" else {}
    return tflite_bytes(
        [T("data", (5, 4)), indices, T("y")],
        [Op(name, ("data", "i"), ("y",), options)],
        ["data"] if indices.data is not None else ["data", "i"],
        ["y"],
    )


@pytest.mark.parametrize(("name", "shape"), [("GATHER", (3,)), ("GATHER_ND", (3, 1))])
def test_tflite_has_no_indices_that_count_from_the_end(
    name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    source = write_model(tmp_path, tflite_gather(name, T("i", shape, "int32"), name))
    indices = np.array([4, 0, 2], "int32").reshape(shape)
    ours = compiled(source)
    check(source, ours, {"data": DATA, "i": indices})
    for value in (-1, 5, 2**31 - 1):
        indices.reshape(-1)[1] = value
        with pytest.raises(IndexError, match=f"'i' holds the index {value}, .* of 0 to 4"):
            ours({"data": DATA, "i": indices})


def test_tflite_constants_are_checked_when_a_model_is_read(tmp_path: Path) -> None:
    content = _with_index(tflite_gather("int32", constant("i", np.array([4, 0, 3], "int32"))), -1)
    with pytest.raises(ModelError, match=r"the index -1|-1 is out of bounds|cannot be imported"):
        import_model(write_model(tmp_path, content))


def _with_index(content: bytes, value: int) -> bytes:
    """LiteRT, which gives the shapes, refuses it: so it is put in afterwards."""
    right = np.array([4, 0, 3], "int32").tobytes()
    assert content.count(right) == 1
    return content.replace(right, np.array([4, 0, value], "int32").tobytes())


def torch_programs() -> dict[str, tuple[Any, tuple[int, ...], bool]]:
    """Each with the shape of its indices, and whether they may count from the end."""
    import torch

    class Program(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, compute: Callable[[Any, Any], Any]) -> None:
            super().__init__()
            self.compute = compute

        def forward(self, data: Any, i: Any) -> Any:
            return self.compute(data * 2, i)

    def put(data: Any, i: Any) -> Any:
        return data.index_put((i, i), torch.ones(3))

    return {
        "indexing": (Program(lambda data, i: data[:, i]), (3,), True),
        "indexing-both": (Program(lambda data, i: data[i, i]), (3,), True),
        "index_put": (Program(put), (3,), True),
        "take": (Program(torch.take), (3,), True),
        "index_select": (Program(lambda data, i: data.index_select(1, i)), (3,), False),
        "gather": (Program(lambda data, i: data.gather(1, i)), (3, 2), False),
        "scatter": (
            Program(lambda data, i: data.scatter(1, i, torch.ones(3, 1))),
            (3, 1),
            False,
        ),
        "embedding": (
            Program(lambda data, i: torch.nn.functional.embedding(i, data)),
            (3,),
            False,
        ),
    }


TORCH = (
    *("indexing", "indexing-both", "index_put", "take", "index_select", "gather", "scatter"),
    "embedding",
)


@needs("torch")
@pytest.mark.parametrize("name", TORCH)
def test_pytorch_counts_from_the_end_where_it_does(name: str, tmp_path: Path) -> None:
    program, shape, counts = torch_programs()[name]
    import torch

    path = tmp_path / "program.pt2"
    example = (torch.from_numpy(DATA), torch.zeros(shape, dtype=torch.int64))
    torch.export.save(torch.export.export(program, example), path)
    source = open_model(path)
    right = np.array([-1, -3, 0] if counts else [3, 2, 0])
    indices = np.broadcast_to(right.reshape(3, *(1,) * (len(shape) - 1)), shape).copy()
    ours = compiled(source)
    check(source, ours, {"data": DATA, "i": indices})
    for value in (-21, 20, LARGEST, *(() if counts else (-1,))):
        wrong = indices.copy()
        wrong.reshape(-1)[-1] = value
        with pytest.raises(IndexError, match=f"'i' holds the index {value}, which is outside of"):
            ours({"data": DATA, "i": wrong})


@needs("torch")
def test_pytorch_selects_from_the_end(tmp_path: Path) -> None:
    import torch

    class Last(torch.nn.Module):  # type: ignore[misc]
        def forward(self, data: Any) -> Any:
            return data[:, -1] + data[-2, 1] + data[:, [0, -1]].sum()

    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Last(), (torch.from_numpy(DATA),)), path)
    found, expected = run_both(open_model(path), {"data": DATA})
    for output, values in expected.items():
        np.testing.assert_allclose(found[output], values, rtol=1e-6)


def test_a_microcontroller_clamps_and_says_so(tmp_path: Path) -> None:
    node, shape = nodes()["GatherND"]
    source = onnx_file(tmp_path, node, shape)
    built_tree(source.path, tmp_path / "net", "net")
    values = ", ".join(f"{value:.9g}f" for value in DATA.reshape(-1))
    (tmp_path / "main.c").write_text(_MAIN.replace("VALUES", values), encoding="utf-8")
    parts = ["main.c", "net/net.c", "-Inet", "-lm", "-o", "main"]
    run(["gcc", "-std=c99", *SANITIZED, *parts], tmp_path).check_returncode()
    done = run(["./main"], tmp_path)
    assert done.returncode == 0, done.stderr
    status, name, *found = done.stdout.split()
    assert (int(status), name) == (1, "i")
    wanted = [DATA[4, 0], DATA[0, 3], DATA[2, 0]]
    np.testing.assert_allclose(np.array(found, float), wanted, rtol=1e-5)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_coordinates_that_are_no_numbers_read_nothing_outside(padding: str, tmp_path: Path) -> None:
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 3, 4))
    grid = helper.make_tensor_value_info("grid", TensorProto.FLOAT, (1, 2, 2, 2))
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], padding_mode=padding)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "test", [image, grid], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    built_tree(model, tmp_path / "net", "net")
    (tmp_path / "main.c").write_text(_SAMPLE, encoding="utf-8")
    parts = ["main.c", "net/net.c", "-Inet", "-lm", "-o", "main"]
    flags = [*SANITIZED, "-fsanitize=float-cast-overflow"]
    run(["gcc", "-std=c99", *flags, *parts], tmp_path).check_returncode()
    done = run(["./main"], tmp_path)
    assert done.returncode == 0, done.stderr


_SAMPLE = """\
#include <math.h>
#include "net.h"
static unsigned char arena[NET_ARENA_BYTES] __attribute__((aligned(16)));
int main(void) {
    static float x[12], grid[8], y[4];
    const float values[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 3e9f, -0.0f, 1.0f};
    const net_inputs inputs = {x, grid};
    const net_outputs outputs = {y};
    for (int first = 0; first < 8; ++first) {
        for (int i = 0; i < 8; ++i) grid[i] = values[(first + i * (1 + first % 3)) % 8];
        if (net_run(&inputs, &outputs, arena) != 0) return 3;
    }
    return 0;
}
"""


_MAIN = """\
#include <stdio.h>
#include "net.h"
static unsigned char arena[NET_ARENA_BYTES] __attribute__((aligned(16)));
int main(void) {
    static const float data[20] = {VALUES};
    static const int64_t right[6] = {-1, 0, 0, -1, 2, 0};
    static const int64_t wrong[6] = {1099511627776, 0, 0, 4, 2, -5};
    float y[3];
    const net_outputs outputs = {y};
    net_inputs inputs = {data, right};
    if (net_run(&inputs, &outputs, arena) != 0) return 3;
    inputs.i = wrong;
    int status = net_run(&inputs, &outputs, arena);
    printf("%d %s %.9g %.9g %.9g\\n", status, net_step_name((unsigned)status - 1),
        (double)y[0], (double)y[1], (double)y[2]);
    return 0;
}
"""


def test_a_deployed_library_names_tensor_and_value(tmp_path: Path) -> None:
    """Linked with its own function, not with the one that this process has."""
    node, shape = nodes()["Gather"]
    source = onnx_file(tmp_path, node, shape)
    bundle = build(
        request_for(source.path), tmp_path / "bundle", use_cache=False, isolated=False
    ).bundle
    assert bundle.reference_inputs()["i"].tolist()[:2] == [-4, 3]
    indices = np.array([-1, 3, -4])
    with LocalDevice().opened(bundle) as session:
        found = session.run({"data": DATA, "i": indices}).outputs["y"]
        np.testing.assert_array_equal(found, DATA[:, indices])
        wrong = {"data": DATA, "i": np.array([0, LARGEST, 0])}
        with pytest.raises(DeviceError) as failed:
            session.run(wrong)
    assert f"'i' holds the index {LARGEST}, which is outside of -4 to 3" in str(failed.value)
    assert "feed indices" in str(failed.value.hint)


def test_every_operator_that_addresses_by_values_is_guarded() -> None:
    """A version of TVM with one more of them has to be looked at."""
    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    from tvm.ir import Op

    from edgekit.compiler.passes.guard_indices import ADDRESSED

    words = ("gather", "scatter", "take", "index", "reverse_sequence", "embedding")
    named = {
        name
        for name in Op.list_op_names()
        if name.startswith("relax.") and any(word in name for word in words)
    }
    assert named - set(ADDRESSED) == {
        # Gradients, several devices at once, and a slice whose place is known at build time.
        "relax.grad.take_backward",
        "relax.ccl.allgather",
        "relax.ccl.scatter_from_worker0",
        "relax.slice_scatter",
    }
