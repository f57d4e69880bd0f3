"""Batch normalisation disappears, and the numbers stay onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from support.examples import examples
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.relax_modules import operators_in, relax_of, run_module, without_dead_code

from edgekit.base.tvm_compat import load_tvm

SPATIAL = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}


def values(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def norm_weights(channels: int, prefix: str = "norm") -> dict[str, np.ndarray]:
    random = np.random.default_rng(channels)
    return {
        f"{prefix}.gamma": random.uniform(-2, 2, channels).astype("float32"),
        f"{prefix}.beta": random.standard_normal(channels).astype("float32"),
        f"{prefix}.mean": random.standard_normal(channels).astype("float32"),
        f"{prefix}.variance": random.uniform(0.01, 3, channels).astype("float32"),
    }


def norm(source: str, result: str, prefix: str = "norm", **attributes: Any) -> onnx.NodeProto:
    parameters = [f"{prefix}.{part}" for part in ("gamma", "beta", "mean", "variance")]
    return helper.make_node("BatchNormalization", [source, *parameters], [result], **attributes)


def folded(model: onnx.ModelProto) -> Any:
    """Constants first, as the pipeline does it: importers reshape a bias before they add it."""
    from edgekit.compiler.passes.fold_batch_norm import fold_batch_norm
    from edgekit.compiler.passes.fold_constants import fold_constants

    return without_dead_code(fold_batch_norm()(fold_constants()(relax_of(model))))


def assert_same_numbers(
    module: Any, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]
) -> None:
    expected = judged_by_onnxruntime(model, feeds)
    actual = run_module(module, feeds)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_takes_the_normalisation_after_it(
    dimensions: int, bias: bool, groups: int
) -> None:
    weights = {"w": values(1, 8, 4 // groups, *[3] * dimensions), **norm_weights(8)}
    if bias:
        weights["b"] = values(2, 8)
    model = onnx_model(
        [
            helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], group=groups),
            norm("c", "y"),
        ],
        {"x": (2, 4, *SPATIAL[dimensions])},
        ["y"],
        weights,
    )

    module = folded(model)

    assert operators_in(module) == [f"nn.conv{dimensions}d", "add"]
    assert_same_numbers(module, model, {"x": values(3, 2, 4, *SPATIAL[dimensions])})


def test_a_chain_of_convolutions_folds_to_the_last_one() -> None:
    nodes, weights, source = [], {}, "x"
    for step in range(3):
        nodes += [
            helper.make_node("Conv", [source, f"w{step}"], [f"c{step}"], pads=[1, 1, 1, 1]),
            norm(f"c{step}", f"n{step}", f"norm{step}", epsilon=1e-3),
            helper.make_node("Relu", [f"n{step}"], [f"r{step}"]),
        ]
        weights[f"w{step}"] = values(step, 4, 4, 3, 3) / 4
        weights |= norm_weights(4, f"norm{step}")
        source = f"r{step}"
    model = onnx_model(nodes, {"x": (1, 4, 6, 6)}, [source], weights)

    module = folded(model)

    assert operators_in(module) == ["nn.conv2d", "add", "nn.relu"] * 3
    assert_same_numbers(module, model, {"x": values(9, 1, 4, 6, 6)})


@pytest.mark.parametrize("kernel_dimensions", [1, 2])
def test_after_a_transposed_convolution_it_becomes_a_multiply_add(kernel_dimensions: int) -> None:
    spatial = SPATIAL[kernel_dimensions]
    model = onnx_model(
        [
            helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], strides=[2] * len(spatial)),
            norm("c", "y"),
        ],
        {"x": (1, 4, *spatial)},
        ["y"],
        {"w": values(1, 4, 6, *[3] * len(spatial)), "b": values(2, 6), **norm_weights(6)},
    )

    module = folded(model)

    assert "nn.batch_norm" not in operators_in(module)
    assert_same_numbers(module, model, {"x": values(3, 1, 4, *spatial)})


@pytest.mark.parametrize("shape", [(3, 5), (2, 5, 7), (1, 5, 4, 6), (1, 5, 2, 3, 4)])
def test_without_a_convolution_it_is_one_multiply_and_one_add(shape: tuple[int, ...]) -> None:
    model = onnx_model([norm("x", "y")], {"x": shape}, ["y"], norm_weights(5))

    module = folded(model)

    assert operators_in(module) == ["multiply", "add"]
    assert_same_numbers(module, model, {"x": values(4, *shape)})


def test_a_convolution_that_someone_else_reads_keeps_its_weights() -> None:
    model = onnx_model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            norm("c", "n"),
            helper.make_node("Add", ["c", "n"], ["y"]),
        ],
        {"x": (1, 3, 6, 6)},
        ["y"],
        {"w": values(1, 4, 3, 3, 3), **norm_weights(4)},
    )

    module = folded(model)

    assert operators_in(module).count("nn.conv2d") == 1
    assert_same_numbers(module, model, {"x": values(2, 1, 3, 6, 6)})


def test_a_convolution_that_is_an_output_itself_keeps_its_weights() -> None:
    model = onnx_model(
        [helper.make_node("Conv", ["x", "w"], ["c"]), norm("c", "y")],
        {"x": (1, 3, 6, 6)},
        ["c", "y"],
        {"w": values(1, 4, 3, 3, 3), **norm_weights(4)},
    )

    module = folded(model)

    assert operators_in(module).count("nn.conv2d") == 1
    assert_same_numbers(module, model, {"x": values(2, 1, 3, 6, 6)})


def test_a_convolution_whose_sum_with_a_bias_is_read_elsewhere_is_not_computed_twice() -> None:
    for also_read in ("c", "b"):
        model = onnx_model(
            [
                helper.make_node("Conv", ["x", "w"], ["c"]),
                helper.make_node("Add", ["c", "bias"], ["b"]),
                norm("b", "n"),
                helper.make_node("Add", [also_read, "n"], ["y"]),
            ],
            {"x": (1, 3, 6, 6)},
            ["y"],
            {"w": values(1, 4, 3, 3, 3), "bias": values(3, 4, 1, 1), **norm_weights(4)},
        )

        module = folded(model)

        assert operators_in(module).count("nn.conv2d") == 1
        assert_same_numbers(module, model, {"x": values(2, 1, 3, 6, 6)})


def normalised(item: int = 0, axis: int = 1, **attributes: Any) -> Any:
    """A convolution and a normalisation as other importers write them."""
    load_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4, 6, 4), "float32"))
    parameters = [relax.const(value) for value in norm_weights(4).values()]
    with builder.function("main", [x]):
        with builder.dataflow():
            filtered = builder.emit(relax.op.nn.conv2d(x, relax.const(values(1, 4, 4, 1, 1))))
            call = relax.op.nn.batch_norm(
                filtered, *parameters, axis=axis, **{"training": False, **attributes}
            )
            result = builder.emit_output(relax.TupleGetItem(builder.emit(call), item))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    "attributes",
    [{"scale": False}, {"center": False}, {"axis": 3}, {"item": 1}, {"item": 2}],
    ids=str,
)
def test_what_a_normalisation_leaves_out_or_gives_besides_stays_so(
    attributes: dict[str, Any],
) -> None:
    """Against TVM's own meaning: no model format that edgekit reads can say these."""
    from edgekit.compiler.passes.fold_batch_norm import fold_batch_norm

    feeds = {"x": values(5, 2, 4, 6, 4)}
    (expected,) = run_module(normalised(**attributes), feeds)

    (actual,) = run_module(without_dead_code(fold_batch_norm()(normalised(**attributes))), feeds)

    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)


def test_a_normalisation_that_still_learns_is_left_alone() -> None:
    from edgekit.compiler.passes.fold_batch_norm import fold_batch_norm

    module = without_dead_code(fold_batch_norm()(normalised(training=True)))

    assert "nn.batch_norm" in operators_in(module)


def test_two_convolutions_may_share_one_weight() -> None:
    model = onnx_model(
        [
            helper.make_node("Conv", ["x", "w"], ["c1"], pads=[1, 1, 1, 1]),
            norm("c1", "n1", "first"),
            helper.make_node("Conv", ["n1", "w"], ["c2"], pads=[1, 1, 1, 1]),
            norm("c2", "y", "second"),
        ],
        {"x": (1, 4, 6, 6)},
        ["y"],
        {
            "w": values(1, 4, 4, 3, 3),
            **norm_weights(4, "first"),
            **{name: value + 1 for name, value in norm_weights(4, "second").items()},
        },
    )

    module = folded(model)

    assert operators_in(module) == ["nn.conv2d", "add"] * 2
    assert_same_numbers(module, model, {"x": values(2, 1, 4, 6, 6)})


def test_a_convolution_whose_weight_is_computed_is_left_alone() -> None:
    model = onnx_model(
        [helper.make_node("Conv", ["x", "w"], ["c"]), norm("c", "y")],
        {"x": (1, 3, 6, 6), "w": (4, 3, 3, 3)},
        ["y"],
        norm_weights(4),
    )

    module = folded(model)

    assert operators_in(module) == ["nn.conv2d", "multiply", "add"]
    assert_same_numbers(module, model, {"x": values(1, 1, 3, 6, 6), "w": values(2, 4, 3, 3, 3)})


@pytest.mark.parametrize(
    "added_shape",
    [(), (1,), (6, 1, 1), (1, 6, 1, 1), (6,), (6, 1), (6, 1, 1, 1), (1, 1, 6, 6), (1, 6, 1, 1, 1)],
    ids=str,
)
def test_only_an_addition_along_the_channels_counts_as_a_bias(added_shape: tuple[int, ...]) -> None:
    """Batch, channels, height and width are all 6, so that numbers alone tell where it goes."""
    model = onnx_model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["c", "added"], ["a"]),
            norm("a", "y"),
        ],
        {"x": (6, 3, 6, 6)},
        ["y"],
        {"w": values(1, 6, 3, 3, 3), "added": values(2, *added_shape), **norm_weights(6)},
    )

    module = folded(model)

    assert_same_numbers(module, model, {"x": values(3, 6, 3, 6, 6)})


def test_a_normalisation_with_unknown_statistics_is_left_alone() -> None:
    weights = norm_weights(4)
    del weights["norm.mean"]
    model = onnx_model(
        [helper.make_node("Conv", ["x", "w"], ["c"]), norm("c", "y")],
        {"x": (1, 3, 6, 6), "norm.mean": (4,)},
        ["y"],
        {"w": values(1, 4, 3, 3, 3), **weights},
    )

    assert "nn.batch_norm" in operators_in(folded(model))


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_convolution_and_normalisation_keep_their_numbers(data: st.DataObject) -> None:
    dimensions = data.draw(st.integers(1, 3), label="dimensions")
    groups = data.draw(st.sampled_from([1, 2, 3]), label="groups")
    per_group = data.draw(st.integers(1, 2), label="inputs a group")
    outputs = groups * data.draw(st.integers(1, 3), label="outputs a group")
    kernel = [data.draw(st.integers(1, 3), label="kernel") for _ in range(dimensions)]
    strides = [data.draw(st.integers(1, 2), label="stride") for _ in range(dimensions)]
    pads = [data.draw(st.integers(0, 2), label="pad") for _ in range(2 * dimensions)]
    epsilon = data.draw(st.sampled_from([1e-5, 1e-3, 0.5]), label="epsilon")
    has_bias = data.draw(st.booleans(), label="bias")
    is_read_twice = data.draw(st.booleans(), label="read twice")
    seed = data.draw(st.integers(0, 2**16), label="seed")
    channels = groups * per_group
    spatial = SPATIAL[dimensions]
    weights = {"w": values(seed, outputs, per_group, *kernel), **norm_weights(outputs)}
    if has_bias:
        weights["b"] = values(seed + 1, outputs)
    convolution = helper.make_node(
        "Conv", ["x", *(name for name in ("w", "b") if name in weights)], ["c"],
        group=groups, strides=strides, pads=pads,
    )  # fmt: skip
    reader = helper.make_node("Sub", ["n", "c" if is_read_twice else "n"], ["y"])
    model = onnx_model(
        [convolution, norm("c", "n", epsilon=epsilon), reader],
        {"x": (1, channels, *spatial)},
        ["n", "y"],
        weights,
    )

    module = folded(model)

    assert "nn.batch_norm" not in operators_in(module)
    assert_same_numbers(module, model, {"x": values(seed + 2, 1, channels, *spatial)})
