"""Kernels write over what they read for the last time, where each element is read at its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.building import script_on_threads
from support.compiling import check_against_onnxruntime, compiled_from, random_array
from support.emulated_arm import build_and_run
from support.examples import examples, one_of
from support.needs import ARM_PROGRAMS, needs
from support.onnx_models import onnx_model
from tvm import ir, relax, runtime, s_tir, target, te, tirx, topi
from tvm.ir.transform import Sequential

from edgekit.compiler import passes
from edgekit.compiler.compile import Compiled
from edgekit.compiler.passes.in_place import in_place, overwritable, pointwise
from edgekit.compiler.passes.plan_memory import plan_memory
from edgekit.compiler.pipeline import LOWER
from edgekit.compiler.schedules.apply import schedule_function
from edgekit.compiler.schedules.machine import machine_of
from edgekit.profiles.cpu import this_cpu

SHAPE = (37, 37)
"""A square, so that a transposed index is one of the same shape; of no vector's width."""
ELEMENT_BYTES = 4
ROWS = (16, 64)
AXIS = {"axis": np.array(0)}
ROWS_BYTES = ELEMENT_BYTES * 16 * 64

Reading = Callable[[Any, Any, Any, Any], Any]


def kernel(reads: Reading, other: tuple[int, ...] = SHAPE, dtype: str = "float32") -> Any:
    """A function of `a` and `b`, and of the two indices of the element that is stored."""
    a, b = te.placeholder(SHAPE, dtype, "a"), te.placeholder(other, "float32", "b")
    return te.create_prim_func([a, b, te.compute(SHAPE, lambda i, j: reads(a, b, i, j))])


def scheduled(function: Any) -> Any:
    return schedule_function(function, machine_of(target.Target(this_cpu()[1].as_json())))


def shifted(levels: int) -> Any:
    """Return a stack of maxima over five shifted reads, and the input added to it."""
    a = stage = te.placeholder(SHAPE, "float32", "a")
    for level in range(levels):
        padded = topi.nn.pad(stage, (1, 1), (1, 1), 0.0, f"pad{level}")
        stage = te.compute(SHAPE, near(padded), f"max{level}")
    return te.create_prim_func([a, te.compute(SHAPE, lambda i, j: stage[i, j] + a[i, j])])


def near(padded: Any) -> Callable[[Any, Any], Any]:
    shifts = ((0, 1), (1, 0), (1, 2), (2, 1), (1, 1))

    def largest(i: Any, j: Any) -> Any:
        return reduce(tirx.max, (padded[i + down, j + right] for down, right in shifts))

    return largest


def test_a_stack_of_shifted_reads_takes_steps_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each level reads those below it at more places; a path to each would be too many."""
    steps: list[Any] = []
    looked_at = passes.in_place.nodes_in

    def count(node: Any, kinds: Any) -> list[Any]:
        if kinds is ir.TensorLoad:
            steps.append(node)
        return looked_at(node, kinds)

    monkeypatch.setattr(passes.in_place, "nodes_in", count)
    counts = []
    for levels in (5, 10):
        steps.clear()
        assert pointwise(shifted(levels)) == frozenset()
        counts.append(len(steps))

    assert counts[1] <= 2 * counts[0]


@pytest.mark.parametrize(
    ("reads", "places"),
    [
        (lambda a, b, i, j: a[i, j] + b[i, j], {0, 1}),
        (lambda a, b, i, j: te.tanh(a[i, j]) * a[i, j] - b[i, 0], {0}),
        (lambda a, b, i, j: tirx.if_then_else(i < j, a[i, j], b[i, j]), {0, 1}),
    ],
    ids=["both", "twice", "chosen"],
)
def test_what_is_read_where_it_is_stored_may_be_written_over(
    reads: Reading, places: set[int]
) -> None:
    function = kernel(reads)

    assert pointwise(function) == places
    assert overwritable(scheduled(function)) == places


@pytest.mark.parametrize(
    "reads",
    [
        lambda a, b, i, j: a[i, 0] + b[0, j],
        lambda a, b, i, j: a[j, i] + b[i, (j + 1) % 37],
        lambda a, b, i, j: a[i, j] + a[j, i] + b[i, j] * b[i, 36 - j],
        lambda a, b, i, j: tirx.max(a[i, j], a[i, tirx.max(j - 1, 0)]) + b[i // 2, j],
    ],
    ids=["broadcast", "turned", "twice", "window"],
)
def test_what_is_read_elsewhere_too_is_not_written_over(reads: Reading) -> None:
    function = kernel(reads)

    assert not pointwise(function)
    assert not overwritable(scheduled(function))


def test_what_has_another_type_or_shape_is_not_written_over() -> None:
    function = kernel(lambda a, b, i, j: a[i, j].astype("float32") + b[i], SHAPE[:1], "int32")

    assert not pointwise(function)
    assert not overwritable(scheduled(function))


def test_what_a_sum_reads_as_well_is_not_written_over() -> None:
    a = te.placeholder(SHAPE, "float32", "a")
    step = te.reduce_axis((0, SHAPE[1]))
    total = te.compute(SHAPE[:1], lambda i: te.sum(a[i, step], axis=step))
    function = te.create_prim_func([a, te.compute(SHAPE, lambda i, j: a[i, j] - total[i])])

    assert not pointwise(function)
    assert not overwritable(scheduled(function))


def test_a_kernel_that_stores_an_element_twice_writes_over_nothing() -> None:
    """Tiles overlap: the second would read what the first one wrote."""
    from tvm.script import tirx as T  # noqa: N812

    @T.prim_func(s_tir=True)
    def overlapping(a: T.Buffer((8,), "float32"), result: T.Buffer((8,), "float32")) -> None:
        for tile, element in T.grid(3, 4):
            with T.sblock("store"):
                place = T.axis.spatial(8, tile * 2 + element)
                result[place] = a[place] + T.float32(1)

    assert not overwritable(overlapping)


def test_in_place_there_is_one_argument_less_and_no_second_pointer() -> None:
    function = scheduled(kernel(lambda a, b, i, j: a[i, j] + b[i, j]))

    changed = in_place(function, 0)

    assert [str(parameter.name) for parameter in changed.params] == [
        str(parameter.name) for parameter in function.params[1:]
    ]
    assert "a[" not in changed.script()


def summed(times: int, shape: tuple[int, ...], outputs: list[str] | None = None) -> onnx.ModelProto:
    """Each step is a running sum, which is no part of another kernel, and then one that works
    element by element on that sum and on what it was made of."""
    nodes = []
    for number in range(times):
        before = f"v{number - 1}" if number else "x"
        nodes += [
            helper.make_node("CumSum", [before, "axis"], [f"s{number}"]),
            helper.make_node("Sub", [before, f"s{number}"], [f"d{number}"]),
            helper.make_node("Tanh", [f"d{number}"], [f"v{number}"]),
        ]
    return onnx_model(nodes, {"x": shape}, outputs or [f"v{times - 1}"], AXIS)


def in_place_of(compiled: Compiled) -> int:
    return sum("_in_place" in name for name in compiled.kernels)


def test_a_chain_of_kernels_stays_in_the_same_memory() -> None:
    """The model's output is a third tensor of that size; its kernel is called as it was. Where
    the other argument is the model's input, the sum is written over."""
    compiled = check_against_onnxruntime(summed(4, ROWS), {"x": random_array(ROWS)})

    assert compiled.memory.planned == compiled.memory.least == 3 * ROWS_BYTES
    assert in_place_of(compiled) == 2
    assert len(compiled.kernels) == 4


def test_what_is_read_again_later_is_not_written_over() -> None:
    nodes = [
        *summed(3, ROWS).graph.node,
        helper.make_node("CumSum", ["v2", "axis"], ["s3"]),
        helper.make_node("Add", ["s3", "v0"], ["v3"]),
        helper.make_node("CumSum", ["v3", "axis"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": ROWS}, ["y"], AXIS)

    compiled = check_against_onnxruntime(model, {"x": random_array(ROWS)})

    assert in_place_of(compiled) > 0
    assert compiled.memory.least == 3 * ROWS_BYTES, "v0, and two of a step"


def test_an_output_of_the_model_is_written_over_nothing_and_by_nothing() -> None:
    model = summed(3, ROWS, ["v0", "v1", "v2"])

    compiled = check_against_onnxruntime(model, {"x": random_array(ROWS)})

    assert in_place_of(compiled) == 0


def test_an_input_of_the_model_is_as_it_was() -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("CumSum", ["a", "axis"], ["b"]),
        helper.make_node("CumSum", ["b", "axis"], ["y"]),
    ]
    compiled = compiled_from(onnx_model(nodes, {"x": ROWS}, ["y"], AXIS))
    machine = relax.VirtualMachine(compiled.code.executable, runtime.cpu())
    given = random_array(ROWS)
    tensor = runtime.tensor(given)

    machine["main"](tensor)

    np.testing.assert_array_equal(tensor.numpy(), given)
    assert in_place_of(compiled) == 0


def planned(by_a_library: bool) -> Any:
    """Make something of `x` twice, and subtract; then two more steps."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_te(topi.tanh, x)
            if by_a_library:
                call = relax.call_dps_packed(
                    "test.library", first, relax.TensorType(SHAPE, "float32")
                )
                second = builder.emit(call)
            else:
                second = builder.emit_te(topi.exp, first)
            difference = builder.emit_te(topi.subtract, first, second)
            result = builder.emit_output(
                builder.emit_te(topi.exp, builder.emit_te(topi.tanh, difference))
            )
        builder.emit_func_output(result)
    module = builder.finalize()
    return Sequential([*LOWER.passes, plan_memory()])(module)


def test_what_a_library_touches_is_not_written_over() -> None:
    names = [
        [variable.name_hint for variable in planned(by_a_library).get_global_vars()]
        for by_a_library in (False, True)
    ]

    assert any("_in_place" in name for name in names[0])
    assert not any("_in_place" in name for name in names[1])


def test_threads_of_a_gpu_write_over_nothing() -> None:
    schedule = s_tir.Schedule(kernel(lambda a, b, i, j: a[i, j] + b[i, j]))
    rows, columns = schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0])
    schedule.bind(rows, "blockIdx.x")
    schedule.bind(columns, "threadIdx.x")

    assert not overwritable(schedule.mod["main"])


def residual(edge: int = 14, channels: int = 16) -> onnx.ModelProto:
    """A convolution whose kernel adds what the block began with."""
    weights = {f"w{n}": random_array((channels, channels, 3, 3), n) / 12 for n in range(6)}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["v0"], pads=[1] * 4)]
    for number in range(1, 5):
        before = f"v{number - 1}"
        nodes += [
            helper.make_node("Conv", [before, f"w{number}"], [f"c{number}"], pads=[1] * 4),
            helper.make_node("Add", [f"c{number}", before], [f"s{number}"]),
            helper.make_node("Relu", [f"s{number}"], [f"v{number}"]),
        ]
    nodes.append(helper.make_node("Conv", ["v4", "w5"], ["y"], pads=[1] * 4))
    return onnx_model(nodes, {"x": (1, channels, edge, edge)}, ["y"], weights)


def bottlenecks() -> onnx.ModelProto:
    """As in ResNet-50: wide, narrow, and wide again, which is added to what was there."""
    weights = {
        "w": random_array((32, 8, 3, 3), 1) / 9,
        **{f"n{n}": random_array((8, 32, 1, 1), n) / 6 for n in range(3)},
        **{f"b{n}": random_array((32, 8, 1, 1), n) / 3 for n in range(2)},
    }
    nodes = [helper.make_node("Conv", ["x", "w"], ["v0"], pads=[1] * 4)]
    for number in range(2):
        before = f"v{number}"
        nodes += [
            helper.make_node("Conv", [before, f"n{number}"], [f"c{number}"]),
            helper.make_node("Conv", [f"c{number}", f"b{number}"], [f"e{number}"]),
            helper.make_node("Add", [f"e{number}", before], [f"s{number}"]),
            helper.make_node("Relu", [f"s{number}"], [f"v{number + 1}"]),
        ]
    nodes.append(helper.make_node("Conv", ["v2", "n2"], ["y"]))
    return onnx_model(nodes, {"x": (1, 8, 15, 15)}, ["y"], weights)


def test_a_residual_is_added_where_it_lies() -> None:
    shape = (1, 8, 15, 15)

    compiled = check_against_onnxruntime(bottlenecks(), {"x": random_array(shape)}, near=1e-4)

    narrow, wide = (ELEMENT_BYTES * channels * 15 * 15 for channels in (8, 32))
    callers = narrow
    assert in_place_of(compiled) == 1
    assert compiled.memory.planned <= wide + 2 * narrow + callers


def test_a_residual_that_the_convolution_reads_as_well_stays_as_it_is() -> None:
    shape = (1, 16, 14, 14)

    compiled = check_against_onnxruntime(residual(), {"x": random_array(shape)}, near=1e-4)

    assert in_place_of(compiled) == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["Add", "Mul", "centre", "turn", "sum", "sum", "Softmax"]),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    min_size=3,
    max_size=10,
)


def steps_of(steps: list[tuple[str, int, int]]) -> list[onnx.NodeProto]:
    nodes, values = [], ["x", "z"]
    for number, (kind, first, second) in enumerate(steps):
        a, b, made = (
            values[-1 - first % len(values)],
            values[-1 - second % len(values)],
            f"v{number}",
        )
        if kind == "centre":
            nodes.append(helper.make_node("ReduceMean", [a], [f"m{number}"], axes=[1], keepdims=1))
            nodes.append(helper.make_node("Sub", [b, f"m{number}"], [made]))
        elif kind == "turn":
            nodes.append(helper.make_node("Transpose", [a], [f"t{number}"], perm=[1, 0]))
            nodes.append(helper.make_node("Sub", [b, f"t{number}"], [made]))
        elif kind == "sum":
            nodes.append(helper.make_node("CumSum", [a, "axis"], [f"s{number}"]))
            nodes.append(helper.make_node("Tanh", [f"s{number}"], [f"h{number}"]))
            nodes.append(helper.make_node("Sub", [b, f"h{number}"], [made]))
        elif kind in ("Add", "Mul"):
            nodes.append(helper.make_node(kind, [a, b], [made]))
        else:
            nodes.append(helper.make_node(kind, [a], [made]))
        values.append(made)
    return nodes


@settings(max_examples=examples(15))
@given(STEPS, st.integers(1, 2))
def test_whatever_is_written_over_the_numbers_are_right(
    steps: list[tuple[str, int, int]], outputs: int
) -> None:
    shape = (13, 13)
    kept = [f"v{number}" for number in range(len(steps))][-outputs:]
    model = onnx_model(steps_of(steps), {"x": shape, "z": shape}, kept, AXIS)
    feeds = {"x": random_array(shape) / 4, "z": random_array(shape, 1) / 4}

    compiled = check_against_onnxruntime(model, feeds, near=1e-4)

    callers = 2 * ELEMENT_BYTES * shape[0] * shape[1]
    assert compiled.memory.least is not None
    assert compiled.memory.planned >= compiled.memory.least - callers


ON_THREADS = """
from dataclasses import replace
from test_in_place import summed
from support.compiling import check_against_onnxruntime, random_array
from edgekit.profiles.cpu import this_cpu

target = replace(this_cpu()[1], cores=4)
shape = (16, 16384)
compiled = check_against_onnxruntime(summed(4, shape), {"x": random_array(shape)}, target=target)
assert any("_in_place" in name for name in compiled.kernels)
print("right")
"""


@pytest.mark.parametrize("threads", one_of(2, 1, 4))
def test_the_numbers_are_right_on_any_number_of_threads(threads: int) -> None:
    said = script_on_threads(ON_THREADS, threads, Path(__file__).parent)

    assert said.endswith("right")


@needs(*ARM_PROGRAMS)
def test_on_arm_it_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "summed.onnx"
    onnx.save(summed(4, (16, 60)), file)

    bundle, found = build_and_run(file, "rpi4", tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
