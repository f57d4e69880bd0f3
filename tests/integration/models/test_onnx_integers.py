"""Integers as onnxruntime's own tools export them mean what onnxruntime says they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.deployed import run_deployed
from support.examples import one_of
from support.onnx_models import judged_by_onnxruntime

from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.base.errors import UnsupportedModelError
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board

MICROSOFT = "com.microsoft"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """Nodes, the inputs that the device gets, and constants."""

    nodes: Sequence[onnx.NodeProto]
    feeds: Arrays
    weights: Arrays = field(default_factory=dict)
    steps: int = 0
    """The most steps by which quantised outputs may be off: floats add up to a tie."""
    near: float = 2e-5
    """The tolerance relative to the largest element."""
    outputs: Sequence[str] = ("y",)


def model_of(case: Case) -> onnx.ModelProto:
    def declared(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(name, element, value.shape)

    graph = helper.make_graph(
        list(case.nodes),
        "test",
        [declared(name, value) for name, value in case.feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in case.outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in case.weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(case: Case, folder: Path) -> OffloadedModel:
    """Compile, run and compare with onnxruntime."""
    return check_model(model_of(case), case.feeds, folder, case.steps, case.near)


def check_model(
    proto: onnx.ModelProto, feeds: Arrays, folder: Path, steps: int = 0, near: float = 2e-5
) -> OffloadedModel:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    model = import_model(open_model(path))
    compiled = compile_model(model, load_board("local").target)
    found = run_deployed(compiled, [feeds[spec.name] for spec in model.inputs])
    for mine, judge in zip(found, judged_by_onnxruntime(proto, feeds), strict=True):
        assert mine.shape == judge.shape
        assert mine.dtype == judge.dtype
        if judge.dtype.kind in "iu":
            assert np.abs(mine.astype("int64") - judge).max(initial=0) <= steps
        else:
            largest = float(np.abs(judge).max(initial=0))
            np.testing.assert_allclose(mine, judge, rtol=near, atol=near * largest + 1e-7)
    return compiled


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **more: Any) -> Any:
    domain = "" if operator in ONNX_OWN else MICROSOFT
    return helper.make_node(operator, list(inputs), list(outputs), domain=domain, **more)


ONNX_OWN = frozenset(
    ("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "Cast", "Mul", "LayerNormalization")
)


def floats(random: Any, *shape: int) -> np.ndarray:
    return np.asarray(random.standard_normal(shape) * random.uniform(0.2, 4), "float32")


def integers(random: Any, dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return random.integers(limits.min, int(limits.max) + 1, shape).astype(dtype)


def scale_of(random: Any, *shape: int) -> np.ndarray:
    return np.asarray(random.uniform(0.005, 0.05, shape), "float32")


def dynamic_chain(random: Any, stored: str) -> Case:
    """What `quantize_dynamic` makes of a MatMul."""
    rows, depth, columns = (int(n) for n in random.integers(1, 40, 3))
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["sums"]),
        node("Cast", ["sums"], ["real"], to=1),
        node("Mul", ["s", "ws"], ["scale"]),
        node("Mul", ["real", "scale"]),
    ]
    per_column = bool(random.integers(2))
    shape = (columns,) if per_column else ()
    weights = {
        "w": integers(random, stored, depth, columns),
        "wz": integers(random, stored, *shape),
        "ws": scale_of(random, *shape),
    }
    return Case(nodes, {"x": floats(random, 2, rows, depth)}, weights)


def dynamic_quantize_linear(random: Any, stored: str) -> Case:
    value = floats(random, *(int(n) for n in random.integers(1, 9, 3)))
    value = {"int8": value, "uint8": np.abs(value) + 1}[stored]
    made = node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    return Case([made], {"x": value}, steps=1, outputs=("y", "s", "z"))


def matmul_integer(random: Any, stored: str) -> Case:
    rows, depth, columns = (int(n) for n in random.integers(1, 40, 3))
    other = ("int8", "uint8")[int(random.integers(2))]
    weights = {
        "w": integers(random, other, depth, columns),
        "az": integers(random, stored),
        "wz": integers(random, other),
    }
    made = node("MatMulInteger", ["a", "w", "az", "wz"])
    return Case([made], {"a": integers(random, stored, rows, depth)}, weights)


def matmul_of_two_computed(random: Any, stored: str) -> Case:
    feeds = {"a": integers(random, "uint8", 2, 5, 7), "b": integers(random, stored, 2, 7, 3)}
    zeros = {"az": integers(random, "uint8"), "bz": integers(random, stored)}
    return Case([node("MatMulInteger", ["a", "b", "az", "bz"])], feeds, zeros)


def conv_integer(random: Any, stored: str) -> Case:
    rank, groups = int(random.integers(1, 3)), int(random.choice([1, 1, 2, 4]))
    channels = groups * int(random.choice([1, 3, 8]))
    outputs = groups * int(random.integers(1, 9))
    kernel = [int(n) for n in random.integers(1, 4, rank)]
    weights = {
        "w": integers(random, stored, outputs, channels // groups, *kernel),
        "wz": np.array(128 if stored == "uint8" else 0, stored),
    }
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(
            "ConvInteger",
            ["q", "w", "z", "wz"],
            group=groups,
            strides=[int(n) for n in random.integers(1, 3, rank)],
            dilations=[int(n) for n in random.integers(1, 3, rank)],
            pads=[int(n) for n in random.integers(0, 3, 2 * rank)],
        ),
    ]
    return Case(nodes, {"x": floats(random, 2, channels, *(9,) * rank)}, weights)


def conv_integer_of_any_zero(random: Any, stored: str) -> Case:
    weights = {"w": integers(random, stored, 4, 3, 3, 3), "wz": integers(random, stored)}
    feeds = {"a": integers(random, "uint8", 1, 3, 6, 6), "az": integers(random, "uint8")}
    return Case([node("ConvInteger", ["a", "w", "az", "wz"], pads=[1, 0, 2, 1])], feeds, weights)


def dynamic_quantize_matmul(random: Any, stored: str) -> Case:
    rows, depth, columns = (int(n) for n in random.integers(1, 40, 3))
    shape = (columns,) if random.integers(2) else (1,)
    weights = {
        "w": integers(random, stored, depth, columns),
        "ws": scale_of(random, *shape),
        "wz": integers(random, stored, *shape),
        "b": floats(random, columns),
    }
    names = ["x", "w", "ws", "wz", "b"][: int(random.choice([3, 4, 5]))]
    made = node("DynamicQuantizeMatMul", names)
    used = {name: weights[name] for name in names[1:]}
    return Case([made], {"x": floats(random, rows, depth)}, used)


def matmul_integer_to_float(random: Any, stored: str) -> Case:
    rows, depth, columns = (int(n) for n in random.integers(1, 40, 3))
    shape = (columns,) if random.integers(2) else ()
    weights = {
        "w": integers(random, stored, depth, columns),
        "xs": scale_of(random),
        "ws": scale_of(random, *shape),
        "xz": integers(random, "uint8"),
        "wz": integers(random, stored, *shape),
        "b": floats(random, columns),
    }
    names = ["x", "w", "xs", "ws", "xz", "wz", "b"][: int(random.choice([6, 7]))]
    made = node("MatMulIntegerToFloat", names)
    used = {name: weights[name] for name in names[1:]}
    return Case([made], {"x": integers(random, "uint8", 2, rows, depth)}, used)


def dynamic_quantize_lstm(random: Any, stored: str) -> Case:
    steps, batch, size, hidden = (int(n) for n in random.integers(1, 9, 4))
    direction = str(random.choice(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1
    apart = (count, 4 * hidden) if random.integers(2) else (count,)
    weights = {
        "w": integers(random, stored, count, size, 4 * hidden),
        "r": integers(random, stored, count, hidden, 4 * hidden),
        "b": floats(random, count, 8 * hidden),
        "ws": scale_of(random, *apart),
        "rs": scale_of(random, *apart),
        **{name: np.full(apart, 0 if stored == "int8" else 131, stored) for name in ("wz", "rz")},
    }
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    outputs = ("y", "h", "c")
    made = node("DynamicQuantizeLSTM", inputs, outputs, hidden_size=hidden, direction=direction)
    feeds = {"x": floats(random, steps, batch, size)}
    return Case([made], feeds, weights, near=2e-2, outputs=outputs)


def pairwise(operator: str) -> Callable[[Any, str], Case]:
    def case(random: Any, stored: str) -> Case:
        shape = [int(n) for n in random.integers(1, 7, 3)]
        weights: dict[str, np.ndarray] = {}
        for name in ("a", "b", "c"):
            weights |= {f"{name}s": scale_of(random), f"{name}z": integers(random, stored)}
        feeds = {"a": integers(random, stored, *shape), "b": integers(random, stored, *shape[1:])}
        names = ["a", "as", "az", "b", "bs", "bz", "cs", "cz"]
        return Case([node(operator, names)], feeds, weights, steps=1)

    return case


def alone(operator: str, **attributes: Any) -> Callable[[Any, str], Case]:
    def case(random: Any, stored: str) -> Case:
        shape = (2, 3, 8, 6)
        weights = {"xs": scale_of(random), "xz": integers(random, stored)}
        weights |= {"ys": scale_of(random), "yz": integers(random, stored)}
        if operator == "QLinearSoftmax":
            zero = np.array(-128 if stored == "int8" else 0, stored)
            weights |= {"ys": np.array(1 / 256, "float32"), "yz": zero}
        made = node(operator, ["x", "xs", "xz", "ys", "yz"], **attributes)
        return Case([made], {"x": integers(random, stored, *shape)}, weights, steps=1)

    return case


def qlinear_concat(random: Any, stored: str) -> Case:
    weights = {"ys": scale_of(random), "yz": integers(random, stored)}
    names, feeds = ["ys", "yz"], {}
    for i in range(3):
        feeds[f"x{i}"] = integers(random, stored, 2, i + 1, 3)
        weights |= {f"s{i}": scale_of(random), f"z{i}": integers(random, stored)}
        names += [f"x{i}", f"s{i}", f"z{i}"]
    return Case([node("QLinearConcat", names, axis=1)], feeds, weights, steps=1)


def qlinear_where(random: Any, stored: str) -> Case:
    weights: dict[str, np.ndarray] = {}
    for name in ("x", "y", "z"):
        weights |= {f"{name}s": scale_of(random), f"{name}z": integers(random, stored)}
    feeds = {"c": random.integers(0, 2, (3, 4)).astype(bool)}
    feeds |= {name: integers(random, stored, 2, 3, 4) for name in ("a", "b")}
    names = ["c", "a", "xs", "xz", "b", "ys", "yz", "zs", "zz"]
    return Case([node("QLinearWhere", names)], feeds, weights, steps=1)


def qgemm(random: Any, stored: str) -> Case:
    rows, depth, columns = (int(n) for n in random.integers(1, 30, 3))
    turned = int(random.integers(2))
    per_column = bool(random.integers(2))
    shape = (columns,) if per_column else ()
    weights = {
        "as": scale_of(random),
        "az": integers(random, "uint8"),
        "b": integers(random, stored, *((columns, depth) if turned else (depth, columns))),
        "bs": scale_of(random, *shape),
        "bz": np.full(shape, 3 if stored == "int8" else 120, stored),
        "c": random.integers(-5000, 5000, columns).astype("int32"),
        "ys": scale_of(random) * 10,
        "yz": integers(random, "uint8"),
    }
    names = ["a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"]
    if random.integers(2):
        names = names[:7]
    made = node("QGemm", names, transB=turned, alpha=float(random.uniform(0.5, 2)))
    used = {name: weights[name] for name in names[1:]}
    return Case([made], {"a": integers(random, "uint8", rows, depth)}, used, steps=1)


def qattention(random: Any, stored: str) -> Case:
    batch, tokens, heads, size, width = (int(n) for n in random.integers(1, 6, 5))
    out = heads * size
    weights = {
        "w": integers(random, stored, width, 3 * out),
        "b": floats(random, 3 * out),
        "xs": scale_of(random),
        "ws": scale_of(random),
        "xz": integers(random, "uint8"),
        "wz": integers(random, stored),
    }
    mask = int(random.integers(3))
    feeds = {"x": integers(random, "uint8", batch, tokens, width)}
    if mask == 1:
        feeds["m"] = random.integers(1, tokens + 1, (batch,)).astype("int32")
    elif mask == 2:
        feeds["m"] = np.maximum(
            random.integers(0, 2, (batch, tokens)), np.arange(tokens) == 0
        ).astype("int32")
    names = ["x", "w", "b", "xs", "ws", "m" if mask else "", "xz", "wz"]
    causal = int(random.integers(2))
    made = node("QAttention", names, num_heads=heads, unidirectional=causal)
    return Case([made], feeds, weights)


def attention(random: Any, stored: str) -> Case:
    batch, tokens, heads, size, width = (int(n) for n in random.integers(1, 6, 5))
    out, earlier = heads * size, 3 if stored == "int8" else 0
    weights = {"w": floats(random, width, 3 * out), "b": floats(random, 3 * out)}
    feeds = {"x": floats(random, batch, tokens, width)}
    names, outputs = ["x", "w", "b", "", ""], ("y",)
    if earlier:
        feeds["past"] = floats(random, 2, batch, heads, earlier, size)
        names, outputs = ["x", "w", "b", "", "past"], ("y", "present")
    elif random.integers(2):
        feeds["more"] = floats(random, 1, heads, tokens, tokens)
        names.append("more")
    causal = int(random.integers(2))
    made = node("Attention", names, outputs, num_heads=heads, unidirectional=causal)
    return Case([made], feeds, weights, outputs=outputs)


def multi_head_attention(random: Any, stored: str) -> Case:
    batch, tokens, others, heads, size = (int(n) for n in random.integers(1, 6, 5))
    feeds = {
        "q": floats(random, batch, tokens, heads * size),
        "k": floats(random, batch, others, heads * size),
        "v": floats(random, batch, others, heads * size),
    }
    weights = {"b": floats(random, 3 * heads * size)}
    names = ["q", "k", "v", "b" if stored == "int8" else "", ""]
    if random.integers(2):
        kept = np.maximum(random.integers(0, 2, (batch, others)), np.arange(others) == 0)
        feeds["m"] = kept.astype("int32")
        names[4] = "m"
    used = weights if names[3] else {}
    return Case([node("MultiHeadAttention", names, num_heads=heads)], feeds, used)


def rotary_embedding(random: Any, stored: str) -> Case:
    batch, tokens, heads, half = (int(n) for n in random.integers(1, 6, 4))
    angles = random.uniform(0, 6, (12, half))
    weights = {"c": np.cos(angles).astype("float32"), "s": np.sin(angles).astype("float32")}
    place = random.integers(0, 7, (batch, tokens) if random.integers(2) else (1,))
    shape = (batch, heads, tokens, 2 * half) if stored == "int8" else (batch, tokens, 2 * half)
    feeds = {"x": floats(random, *shape), "p": place.astype("int64")}
    made = node("RotaryEmbedding", ["x", "p", "c", "s"], interleaved=int(random.integers(2)))
    return Case([made], feeds, weights)


def embed_layer_normalization(random: Any, stored: str) -> Case:
    batch, tokens, width = (int(n) for n in random.integers(1, 9, 3))
    width += 3
    weights = {name: floats(random, 9, width) for name in ("words", "places", "parts")}
    weights |= {"g": floats(random, width), "b": floats(random, width)}
    feeds = {"i": random.integers(0, 9, (batch, tokens)).astype("int32")}
    names = ["i", "", "words", "places", "", "g", "b", ""]
    if stored == "int8":
        feeds["t"] = random.integers(0, 2, (batch, tokens)).astype("int32")
        feeds["m"] = np.ones((batch, tokens), "int32")
        names = ["i", "t", "words", "places", "parts", "g", "b", "m"]
    used = {name: value for name, value in weights.items() if name in names}
    outputs = ("y", "mi")
    made = node("EmbedLayerNormalization", names, outputs, epsilon=1e-5)
    return Case([made], feeds, used, near=1e-4, outputs=outputs)


def skip_simplified(random: Any, stored: str) -> Case:
    feeds = {"x": floats(random, 2, 3, 8), "k": floats(random, 2, 3, 8)}
    made = node("SkipSimplifiedLayerNormalization", ["x", "k", "g"], epsilon=1e-5)
    return Case([made], feeds, {"g": floats(random, 8)})


def fused_conv(random: Any, stored: str) -> Case:
    weights = {"w": floats(random, 4, 3, 3, 3), "b": floats(random, 4)}
    activation = {"int8": "Relu", "uint8": "LeakyRelu"}[stored]
    more = {"activation_params": [0.3]} if stored == "uint8" else {}
    made = node("FusedConv", ["x", "w", "b"], activation=activation, pads=[1] * 4, **more)
    return Case([made], {"x": floats(random, 1, 3, 6, 5)}, weights)


def fused_gemm(random: Any, stored: str) -> Case:
    weights = {"w": floats(random, 5, 4), "b": floats(random, 4)}
    more = {"activation": "LeakyRelu", "activation_alpha": 0.2}
    if stored == "int8":
        more = {"activation": "Relu"}
    made = node("FusedGemm", ["x", "w", "b"], alpha=0.7, beta=0.4, **more)
    return Case([made], {"x": floats(random, 3, 5)}, weights)


def matmul_nbits(bits: int) -> Callable[[Any, str], Case]:
    def case(random: Any, stored: str) -> Case:
        rows, columns, blocks = (int(n) for n in random.integers(1, 6, 3))
        block = int(random.choice([16, 32]))
        depth = block * blocks - (0 if random.integers(2) else 4)
        weights = {
            "w": integers(random, "uint8", columns, blocks, block * bits // 8),
            "s": scale_of(random, columns, blocks),
            "z": integers(random, "uint8", columns, -(-blocks * bits // 8)),
        }
        names = ["x", "w", "s", "z"][: 4 if stored == "uint8" else 3]
        made = node("MatMulNBits", names, K=depth, N=columns, bits=bits, block_size=block)
        used = {name: weights[name] for name in names[1:]}
        return Case([made], {"x": floats(random, 2, rows, depth)}, used, near=1e-4)

    return case


def gather_block_quantized(random: Any, stored: str) -> Case:
    rows, blocks = (int(n) for n in random.integers(2, 6, 2))
    weights = {
        "d": integers(random, "uint8", rows, blocks * 8),
        "s": scale_of(random, rows, blocks),
        "z": integers(random, "uint8", rows, -(-blocks // 2)),
    }
    names = ["d", "i", "s", "z"][: 4 if stored == "uint8" else 3]
    made = node(
        "GatherBlockQuantized", names, block_size=16, bits=4, gather_axis=0, quantize_axis=1
    )
    used = {name: weights[name] for name in names if name in weights}
    return Case([made], {"i": random.integers(0, rows, (2, 3))}, used)


def layer_normalization_in_float16(random: Any, stored: str) -> Case:
    feeds = {"x": floats(random, 2, 3, 8).astype("float16")}
    weights = {"s": floats(random, 8).astype("float16"), "b": floats(random, 8).astype("float16")}
    names = ["x", "s", "b"][: 3 if stored == "int8" else 2]
    used = {name: weights[name] for name in names[1:]}
    return Case([node("LayerNormalization", names)], feeds, used, near=2e-3)


CASES: Mapping[str, Callable[[Any, str], Case]] = {
    "DynamicQuantizeLinear, MatMulInteger, Cast, Mul": dynamic_chain,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "MatMulInteger of two computed": matmul_of_two_computed,
    "ConvInteger": conv_integer,
    "ConvInteger of any zero point": conv_integer_of_any_zero,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "MatMulIntegerToFloat": matmul_integer_to_float,
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "QLinearAdd": pairwise("QLinearAdd"),
    "QLinearMul": pairwise("QLinearMul"),
    "QLinearSigmoid": alone("QLinearSigmoid"),
    "QLinearLeakyRelu": alone("QLinearLeakyRelu", alpha=0.2),
    "QLinearAveragePool": alone("QLinearAveragePool", kernel_shape=[3, 2], pads=[1, 0, 1, 0]),
    "QLinearGlobalAveragePool": alone("QLinearGlobalAveragePool", channels_last=0),
    "QLinearGlobalAveragePool, channels last": alone("QLinearGlobalAveragePool", channels_last=1),
    "QLinearSoftmax": alone("QLinearSoftmax", axis=-1, opset=13),
    "QLinearConcat": qlinear_concat,
    "QLinearWhere": qlinear_where,
    "QGemm": qgemm,
    "QAttention": qattention,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "RotaryEmbedding": rotary_embedding,
    "EmbedLayerNormalization": embed_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_simplified,
    "LayerNormalization in float16": layer_normalization_in_float16,
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "MatMulNBits of 4": matmul_nbits(4),
    "MatMulNBits of 8": matmul_nbits(8),
    "GatherBlockQuantized": gather_block_quantized,
}


@pytest.mark.parametrize("seed", one_of(0, 1, 2, 3, 4))
@pytest.mark.parametrize("stored", ["int8", "uint8"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_means_what_onnxruntime_says(
    name: str, stored: str, seed: int, tmp_path: Path
) -> None:
    random = np.random.default_rng([seed, len(name), stored == "int8"])
    check(CASES[name](random, stored), tmp_path)


def test_a_shape_that_does_not_fit_deeper_says_which_dimension(tmp_path: Path) -> None:
    weights = {
        "w": np.zeros((1, 32, 6), "float32"),
        "r": np.zeros((1, 32, 8), "float32"),
    }
    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=8)
    proto = model_of(Case([lstm], {"x": np.zeros((4, 1, 5), "float32")}, weights))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    with pytest.raises(UnsupportedModelError, match=r"'x' \[4, 1, 5\] is 5, .* is 6") as error:
        import_model(open_model(path))
    assert "--shape" in str(error.value.hint)


def test_weights_in_another_order_are_refused_with_the_reason(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weights = {
        "w": integers(random, "uint8", 3, 1, 8),
        "s": scale_of(random, 3, 1),
        "g": np.zeros(16, "int32"),
    }
    made = node("MatMulNBits", ["x", "w", "s", "", "g"], K=16, N=3, bits=4, block_size=16)
    onnx.save(model_of(Case([made], {"x": floats(random, 2, 16)}, weights)), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModelError, match="g_idx") as error:
        import_model(open_model(tmp_path / "m.onnx"))
    assert error.value.hint


@pytest.mark.parametrize("stored", ["int8", "uint8"])
def test_a_quantised_product_runs_in_dot_products(stored: str, tmp_path: Path) -> None:
    """uint8 weights too, whose zero point is not the middle."""
    random = np.random.default_rng(7)
    names = ["x", "w", "ws", "wz"]
    weights = {
        "w": integers(random, stored, 64, 48),
        "ws": scale_of(random, 48),
        "wz": np.full(48, 0 if stored == "int8" else 117, stored),
    }
    made = node("DynamicQuantizeMatMul", names)
    compiled = check(Case([made], {"x": floats(random, 9, 64)}, weights), tmp_path)
    rules = {rule for _, rule in compiled.rules}
    assert "int8" in rules
    assert "none" not in rules
