"""Layers that several nodes of ONNX stand for, in operators that TensorRT's parser always had."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.backends.base import Setting

if TYPE_CHECKING:
    from edgekit.backends.tensorrt.graph import Graph

Expansion = Callable[["Graph", Sequence[str], str, Mapping[str, Setting]], object]
"""What it reads, what it makes, and the layer's settings."""
_Settings = Mapping[str, Setting]


def _silu(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    gate = graph.node("Sigmoid", reads)
    graph.node("Mul", [reads[0], gate], makes=[makes])


def _square(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Mul", [reads[0], reads[0]], makes=[makes])


def _rsqrt(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    graph.node("Reciprocal", [graph.node("Sqrt", reads)], makes=[makes])


def _gelu(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """x/2 * (1 + erf(x / sqrt 2))"""
    scaled = graph.node("Mul", [reads[0], graph.constant(math.sqrt(0.5))])
    _halved_gate(graph, reads[0], graph.node("Erf", [scaled]), makes)


def _gelu_tanh(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"""
    square = graph.node("Mul", [reads[0], reads[0]])
    line = graph.node("Mul", [square, graph.constant(0.044715)])
    factor = graph.node("Add", [line, graph.constant(1.0)])
    curve = graph.node("Mul", [reads[0], factor])
    scaled = graph.node("Mul", [curve, graph.constant(math.sqrt(2 / math.pi))])
    _halved_gate(graph, reads[0], graph.node("Tanh", [scaled]), makes)


def _halved_gate(graph: Graph, value: str, curve: str, makes: str) -> None:
    gate = graph.node("Add", [curve, graph.constant(1.0)])
    half = graph.node("Mul", [value, graph.constant(0.5)])
    graph.node("Mul", [half, gate], makes=[makes])


def _layer_norm(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    value, gamma, beta = reads
    over: _Settings = {"axes": settings["axes"], "keepdims": 1}
    centred = graph.node("Sub", [value, graph.node("ReduceMean", [value], over)])
    variance = graph.node("ReduceMean", [graph.node("Mul", [centred, centred])], over)
    epsilon = graph.constant(settings["epsilon"])
    deviation = graph.node("Sqrt", [graph.node("Add", [variance, epsilon])])
    scaled = graph.node("Mul", [graph.node("Div", [centred, deviation]), gamma])
    graph.node("Add", [scaled, beta], makes=[makes])


def _stored_weight(graph: Graph, reads: Sequence[str], makes: str, settings: _Settings) -> None:
    """Quantised over there: parsers of 8.x take no weights that are integers already."""
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
    "stored_weight": _stored_weight,
}
