"""The parts of an ONNX model that can't be compiled, and who may run them as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.base.tensors import TensorSpec


@dataclass(frozen=True)
class LeftoverNode:
    """A node of the model file that can't be compiled, or that stands between such nodes."""

    operator: str
    name: str
    shape: tuple[int, ...]
    """The shape of its first result; empty if that stays inside."""
    reason: str


@dataclass(frozen=True)
class Leftover:
    """A part of a model as a model of its own, which the imported module calls by `symbol`."""

    symbol: str
    content: bytes
    """The part as an ONNX file."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[LeftoverNode, ...]


@dataclass(frozen=True)
class Leftovers:
    """What becomes of nodes that can't be compiled."""

    backend: str = ""
    """The backend of the board that runs them as they are; empty if it has none."""
    wish: Literal["refused", "advised", "taken"] = "refused"
    """Whether they are refused, refused with advice to name the backend, or taken by it."""


REFUSED = Leftovers()
