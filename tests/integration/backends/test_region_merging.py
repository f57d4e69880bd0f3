"""Regions on random graphs: whatever the graph, the calls can run in some order, every operator
runs once, and the numbers stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.offloading import ToyBackend

from edgekit.backends.base import Region
from edgekit.base.tvm_compat import load_tvm

if TYPE_CHECKING:
    from edgekit.backends.partition import Partition

load_tvm()

UNARY = {"nn.relu": lambda x: np.maximum(x, 0), "negative": np.negative, "abs": np.abs}
BINARY = {"add": np.add, "subtract": np.subtract, "maximum": np.maximum}
FIRST = ToyBackend("first", {"nn.relu": 1, "add": 2})
SECOND = ToyBackend("second", {"add": 2, "negative": 1, "maximum": 2})
SHAPE = (2, 3)


@dataclass(frozen=True)
class Drawn:
    """Operators, each of which reads values before it; value 0 and 1 are the inputs."""

    operators: tuple[tuple[str, tuple[int, ...]], ...]
    results: tuple[int, ...]


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    operators = []
    for index in range(draw(st.integers(2, 14))):
        name = draw(st.sampled_from((*UNARY, *BINARY)))
        # Mostly what was computed last: chains and joins, not a heap.
        reads = tuple(
            max(0, index + 1 - draw(st.integers(0, 4))) for _ in range(1 if name in UNARY else 2)
        )
        operators.append((name, reads))
    last = len(operators) + 1
    results = draw(st.sets(st.integers(2, last), max_size=2)) | {last}
    return Drawn(tuple(operators), tuple(sorted(results)))


def module_of(drawn: Drawn) -> Any:
    from tvm import relax

    builder = relax.BlockBuilder()
    parameters = [relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in "ab"]
    with builder.function("main", parameters):
        with builder.dataflow():
            values = list(parameters)
            for name, reads in drawn.operators:
                operator = relax.op
                for part in name.split("."):
                    operator = getattr(operator, part)
                values.append(builder.emit(operator(*(values[read] for read in reads))))
            output = builder.emit_output(relax.Tuple([values[i] for i in drawn.results]))
        builder.emit_func_output(output)
    return builder.get()


def partitioned(drawn: Drawn, *, one_layer_each: bool = False) -> Partition:
    from edgekit.backends.partition import Selection, partition

    backends = ((FIRST, {}), (SECOND, {}))
    selection = Selection(backends, force=("*",), one_layer_each=one_layer_each)
    return partition(module_of(drawn), selection)


def units_of(found: Partition) -> dict[int, int]:
    """Which region runs each node; nodes of TVM's have a unit each."""
    (graph,) = {id(c.graph): c.graph for c in found.candidates}.values()
    unit = {node.index: node.index for node in graph.nodes}
    for candidate in found.candidates:
        for index in candidate.claim.nodes:
            unit[index] = min(candidate.claim.nodes)
    return unit


def can_run(found: Partition, unit: Mapping[int, int]) -> bool:
    graph = found.candidates[0].graph
    needs: dict[int, set[int]] = {}
    for node in graph.nodes:
        needs.setdefault(unit[node.index], set()).update(
            unit[read] for read in node.reads if unit[read] != unit[node.index]
        )
    try:
        TopologicalSorter(needs).prepare()
    except ValueError:
        return False
    return True


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_every_operator_has_one_owner_and_the_regions_can_run_in_some_order(drawn: Drawn) -> None:
    from tvm import relax

    found = partitioned(drawn)
    claimed = [index for c in found.candidates for index in c.claim.nodes]
    assert len(claimed) == len(set(claimed))
    expected = [
        "first" if name in FIRST.operators else "second" if name in SECOND.operators else None
        for name, _ in drawn.operators
    ]
    assert [decision.backend for decision in found.decisions] == expected
    assert sum(len(c.claim.region.steps) for c in found.candidates) == len(
        expected
    ) - expected.count(None)
    if found.candidates:
        assert can_run(found, units_of(found))
    relax.analysis.well_formed(found.module)  # raises what is wrong


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_no_two_regions_that_touch_could_have_been_one(drawn: Drawn) -> None:
    found = partitioned(drawn)
    if not found.candidates:
        return
    unit = units_of(found)
    backend = {min(c.claim.nodes): c.claim.region.backend for c in found.candidates}
    graph = found.candidates[0].graph
    for node in graph.nodes:
        for read in node.reads:
            one, other = unit[node.index], unit[read]
            if one != other and backend.get(one, "") == backend.get(other):
                merged = {i: one if u == other else u for i, u in unit.items()}
                assert not can_run(found, merged)


def run_in_numpy(region: Region, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    values = {t.name: value for t, value in zip(region.inputs, inputs, strict=True)}
    for step in region.steps:
        compute = {**UNARY, **BINARY}[step.layer.kind]
        (target,) = step.outputs
        values[target.name] = compute(*(values[t.name] for t in step.inputs))
    return [values[t.name] for t in region.outputs]


def serve(region: Region) -> None:
    """Stand for the library: the region's function, under the name that its call looks for."""
    import tvm_ffi

    def call(*tensors: Any) -> None:
        count = len(region.inputs)
        results = run_in_numpy(region, [tensor.numpy() for tensor in tensors[:count]])
        for tensor, result in zip(tensors[count:], results, strict=True):
            tensor.copyfrom(result)

    tvm_ffi.register_global_func(region.symbol, call, override=True)


@pytest.mark.parametrize("one_layer_each", [False, True])
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=graphs())
def test_what_a_partitioned_model_computes_is_what_numpy_computes(
    one_layer_each: bool, drawn: Drawn
) -> None:
    import tvm
    from tvm import relax

    found = partitioned(drawn, one_layer_each=one_layer_each)
    for region in found.regions:
        serve(region)
    random = np.random.default_rng(0)
    values = [random.standard_normal(SHAPE).astype("float32") for _ in range(2)]
    machine = relax.VirtualMachine(tvm.compile(found.module, "llvm"), tvm.cpu())
    results = machine["main"](*(tvm.runtime.tensor(value) for value in values))
    for name, reads in drawn.operators:
        values.append({**UNARY, **BINARY}[name](*(values[read] for read in reads)))
    for index, result in zip(drawn.results, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), values[index])


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=graphs())
def test_a_region_taken_out_of_its_model_computes_the_same_both_ways(drawn: Drawn) -> None:
    """What `--measure` compares: the operators alone, and the call of the library."""
    import tvm
    from tvm import relax

    from edgekit.backends.extract import as_call, as_operators

    random = np.random.default_rng(0)
    for candidate in partitioned(drawn).candidates:
        region = candidate.claim.region
        serve(region)
        inputs = [random.standard_normal(t.shape).astype("float32") for t in region.inputs]
        expected = run_in_numpy(region, inputs)
        for module in (as_operators(candidate), as_call(candidate)):
            module = relax.transform.Normalize()(module)
            relax.analysis.well_formed(module)
            machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
            result = machine["main"](*(tvm.runtime.tensor(value) for value in inputs))
            found = [result] if len(expected) == 1 else list(result)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours.numpy(), theirs)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=graphs())
def test_a_picture_shows_every_operator_once_and_every_arrow(drawn: Drawn) -> None:
    from edgekit.backends.picture import boxes_of, group_chains

    boxes = boxes_of(partitioned(drawn))
    operators = [box.operators for box in boxes if box.kind == "operator"]
    assert sorted(operators) == sorted((name,) for name, _ in drawn.operators)
    assert sum(box.kind == "output" for box in boxes) == len(drawn.results)
    assert all(read < index for index, box in enumerate(boxes) for read in box.reads)

    groups = group_chains(boxes, most_apart=0)
    place = {id(box): n for n, group in enumerate(groups) for box in group.boxes}
    assert len(place) == len(boxes) == sum(len(group.boxes) for group in groups)
    for number, group in enumerate(groups):
        outside = {place[id(boxes[read])] for box in group.boxes for read in box.reads} - {number}
        assert set(group.reads) == outside
        assert len({(box.kind, box.backend, box.region) for box in group.boxes}) == 1
