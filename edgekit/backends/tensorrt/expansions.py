"""Layers that expand to several ONNX nodes, with operators that every TensorRT parser has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.backends.base import Setting

if TYPE_CHECKING:
    from edgekit.base.arrays import Array


class Nodes(Protocol):
    """An ONNX graph under construction."""

    def node(
        self,
        operator: str,
        reads: Sequence[str],
        settings: Mapping[str, Setting] | None = None,
        makes: Sequence[str] = (),
    ) -> str:
        """Add a node and return the name of its first output."""
        ...

    def constant(self, value: Any) -> str:
        """Add a constant and return its name."""
        ...


Expansion = Callable[[Nodes, Sequence[str], str, Mapping[str, Setting]], object]
"""A function of the graph, the layer's inputs, its output and its settings."""
_Settings = Mapping[str, Setting]


def _silu(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    gate = graph.node("Sigmoid", reads)
    graph.node("Mul", [reads[0], gate], makes=[makes])


def _square(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Mul", [reads[0], reads[0]], makes=[makes])


def _rsqrt(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Reciprocal", [graph.node("Sqrt", reads)], makes=[makes])


def _gelu(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """Add x/2 * (1 + erf(x / sqrt 2))."""
    scaled = graph.node("Mul", [reads[0], graph.constant(math.sqrt(0.5))])
    _halved_gate(graph, reads[0], graph.node("Erf", [scaled]), makes)


def _gelu_tanh(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """Add x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    square = graph.node("Mul", [reads[0], reads[0]])
    line = graph.node("Mul", [square, graph.constant(0.044715)])
    factor = graph.node("Add", [line, graph.constant(1.0)])
    curve = graph.node("Mul", [reads[0], factor])
    scaled = graph.node("Mul", [curve, graph.constant(math.sqrt(2 / math.pi))])
    _halved_gate(graph, reads[0], graph.node("Tanh", [scaled]), makes)


def _halved_gate(graph: Nodes, value: str, curve: str, makes: str) -> None:
    gate = graph.node("Add", [curve, graph.constant(1.0)])
    half = graph.node("Mul", [value, graph.constant(0.5)])
    graph.node("Mul", [half, gate], makes=[makes])


def _layer_norm(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    value, gamma, beta = reads
    over: _Settings = {"axes": settings["axes"], "keepdims": 1}
    centred = graph.node("Sub", [value, graph.node("ReduceMean", [value], over)])
    variance = graph.node("ReduceMean", [graph.node("Mul", [centred, centred])], over)
    epsilon = graph.constant(settings["epsilon"])
    deviation = graph.node("Sqrt", [graph.node("Add", [variance, epsilon])])
    scaled = graph.node("Mul", [graph.node("Div", [centred, deviation]), gamma])
    graph.node("Add", [scaled, beta], makes=[makes])


def _not_equal(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Not", [graph.node("Equal", reads)], makes=[makes])


def _any(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    zero = graph.constant(0.0)
    numbers = graph.node("Where", [reads[0], graph.constant(1.0), zero])
    largest = graph.node("ReduceMax", [numbers], settings)
    graph.node("Greater", [largest, zero], makes=[makes])


def _truth_to_float(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Where", [reads[0], graph.constant(1.0), graph.constant(0.0)], makes=[makes])


def _float_to_truth(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Not", [graph.node("Equal", [reads[0], graph.constant(0.0)])], makes=[makes])


def _attention(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """Add softmax(query * key * scale + bias) * value, head by head."""
    heads_first: _Settings = {"perm": (0, 2, 1, 3)}
    query = graph.node("Transpose", [reads[0]], heads_first)
    key = graph.node("Transpose", [reads[1]], {"perm": (0, 2, 3, 1)})
    value = graph.node("Transpose", [reads[2]], heads_first)
    # The smaller one is scaled, before the product: half precision ends at 65504.
    scaled = graph.node("Mul", [query, graph.constant(settings["scale"])])
    scores = graph.node("MatMul", [scaled, key])
    if len(reads) > 3:
        scores = graph.node("Add", [scores, reads[3]])
    if settings["mask"]:
        scores = graph.node("Add", [scores, graph.constant(_causal(settings))])
    weights = graph.node("Softmax", [scores], {"axis": 3})
    mixed = graph.node("MatMul", [weights, value])
    graph.node("Transpose", [mixed], heads_first, [makes])


def _causal(settings: _Settings) -> Array:
    """Return the mask that hides later keys from a query; its values fit half precision."""
    import numpy as np

    queries, keys = settings["queries"], settings["keys"]
    assert isinstance(queries, int)
    assert isinstance(keys, int)
    first = keys - queries if settings["mask"] == "bottom right" else 0
    allowed = np.tri(queries, keys, first, dtype=bool)
    mask: Array = np.where(allowed, np.float32(0), np.float32(-30000))
    return mask


def _stored_weight(graph: Nodes, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """Add weights that the engine quantises: the parsers of 8.x take no integer weights."""
    value, scale, zero = reads
    stored = graph.node("QuantizeLinear", [value, scale, zero], settings)
    graph.node("DequantizeLinear", [stored, scale, zero], settings, [makes])


EXPANSIONS: Mapping[str, Expansion] = {
    "silu": _silu,
    "square": _square,
    "rsqrt": _rsqrt,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "layer_norm": _layer_norm,
    "not_equal": _not_equal,
    "any": _any,
    "truth_to_float": _truth_to_float,
    "float_to_truth": _float_to_truth,
    "attention": _attention,
    "stored_weight": _stored_weight,
}
