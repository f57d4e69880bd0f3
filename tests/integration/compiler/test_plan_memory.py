"""Tensors share memory: never two that are alive together, and no more than in TVM's plan."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.compiling import check_against_onnxruntime, random_array
from support.examples import examples
from support.onnx_models import onnx_model
from support.relax_modules import relax_of
from tvm import relax, target
from tvm.ir.transform import Sequential

from edgekit.compiler.compile import fused
from edgekit.compiler.passes.plan_memory import plan_memory, planned_bytes
from edgekit.profiles.cpu import this_cpu

CHANNELS = 4
EDGE = 12


def network(steps: list[tuple[int, int, int]], outputs: int) -> onnx.ModelProto:
    """Each step convolves one value that is there, and adds or concatenates another."""
    nodes, weights = [], {}
    values = [("x", CHANNELS)]
    for number, (first, second, width) in enumerate(steps):
        name, channels = values[first % len(values)]
        other, others = values[second % len(values)]
        weights[f"w{number}"] = random_array((width, channels, 3, 3), number) / np.float32(
            3 * channels**0.5
        )
        made = f"c{number}"
        nodes.append(helper.make_node("Conv", [name, f"w{number}"], [made], pads=[1] * 4))
        joined = f"j{number}"
        if others == width:
            nodes.append(helper.make_node("Add", [made, other], [joined]))
            values.append((joined, width))
        else:
            nodes.append(helper.make_node("Concat", [made, other], [joined], axis=1))
            values.append((joined, width + others))
        pooled = f"p{number}"
        nodes.append(
            helper.make_node(
                "MaxPool", [joined], [pooled], kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]
            )
        )
        values.append((pooled, values[-1][1]))
    kept = [name for name, _ in values[1:]][-outputs:]
    return onnx_model(nodes, {"x": (1, CHANNELS, EDGE, EDGE)}, kept, weights)


STEPS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.sampled_from([2, 4, 8, 16])),
    min_size=2,
    max_size=7,
)


@settings(max_examples=examples(12))
@given(STEPS, st.integers(1, 3))
def test_whatever_shares_memory_the_numbers_are_right(
    steps: list[tuple[int, int, int]], outputs: int
) -> None:
    feeds = {"x": random_array((1, CHANNELS, EDGE, EDGE))}

    compiled = check_against_onnxruntime(network(steps, outputs), feeds, near=1e-4)

    callers = 4 * EDGE * EDGE * (CHANNELS + 200 * outputs)  # more than inputs and outputs take
    assert compiled.memory.least is not None
    assert compiled.memory.planned >= compiled.memory.least - callers


@settings(max_examples=examples(10))
@given(STEPS)
def test_the_plan_takes_no_more_than_tvms_own(steps: list[tuple[int, int, int]]) -> None:
    with target.Target(this_cpu()[1].as_json()):
        module = Sequential(
            [
                relax.transform.RewriteDataflowReshape(),
                relax.transform.ToNonDataflow(),
                relax.transform.RemovePurityChecking(),
                relax.transform.CallTIRRewrite(),
            ]
        )(fused(relax_of(network(steps, 1))))
        theirs = planned_bytes(relax.transform.StaticPlanBlockMemory()(module))
        ours = planned_bytes(plan_memory()(module))

    assert 0 < ours <= theirs


def test_a_pyramid_is_planned_near_what_is_alive_at_once() -> None:
    """Each level is wanted again later: what TVM's plan in the order of the steps does badly."""
    steps = [(0, 0, 16), (2, 2, 8), (4, 4, 4), (6, 2, 8), (8, 1, 16)]
    feeds = {"x": random_array((1, CHANNELS, EDGE, EDGE))}

    memory = check_against_onnxruntime(network(steps, 1), feeds, near=1e-4).memory

    assert memory.least is not None
    assert memory.planned <= 1.6 * memory.least
