"""Write a region for include/edgekit_program.h: one line per layer, the weights as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.backends.base import Region, Setting, Step
from edgekit.base.quoting import c_string

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

_ALIGNMENT = 64
_BYTES = ("int8", "uint8")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    lines: tuple[str, ...]
    weights: bytes

    @property
    def literals(self) -> str:
        """Return the rows of a C++ array."""
        return "\n".join(f"    {c_string(line)}," for line in self.lines)


def program_of(region: Region) -> Program:
    writer = _Writer()
    for tensor in region.inputs:
        writer.value(held(tensor.shape), f"input{_width(tensor.dtype)}", tensor.name)
    for step in region.steps:
        writer.step(step)
    numbers = (writer.numbers[tensor.name] for tensor in region.outputs)
    writer.lines.append(f"outputs {_joined(numbers)}")
    return Program(tuple(writer.lines), bytes(writer.weights))


def held(shape: Sequence[int]) -> Shape:
    """Return the shape; a scalar gets an axis of one."""
    return tuple(shape) or (1,)


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.weights = bytearray()
        self.numbers: dict[str, int] = {}
        self._shapes: list[Shape] = []

    def value(self, shape: Shape, role: str, name: str = "") -> int:
        """Add a value; `name` is given for tensors of the model."""
        number = len(self._shapes)
        self._shapes.append(shape)
        self.lines.append(f"{role} {_joined(shape)} {_one_line(name)}".rstrip())
        if name:
            self.numbers[name] = number
        return number

    def step(self, step: Step) -> None:
        """Add a rule's layer. `view0` and so on are the shapes under which it reads its inputs,
        `makes` is the shape of its result, `operand0` and so on are constant inputs."""
        name = "+".join(step.nodes) if step.nodes else "+".join(step.operators)
        settings, weights = dict(step.layer.settings), dict(step.layer.weights)
        reads = []
        for place, tensor in enumerate(step.inputs):
            wanted = settings.pop(f"view{place}", held(tensor.shape))
            reads.append(self._viewed(self.numbers[tensor.name], wanted, name))
        for key in sorted(key for key in weights if key.startswith("operand")):
            reads.insert(int(key.removeprefix("operand")), self._constant(weights.pop(key)))
        for key, array in weights.items():
            settings[key] = self._constant(array)
        shapes = [held(tensor.shape) for tensor in step.outputs]
        made = settings.pop("makes", shapes[0])
        assert isinstance(made, tuple)
        if made == shapes[0]:
            makes = [
                self.value(shape, f"value{_width(tensor.dtype)}", tensor.name)
                for shape, tensor in zip(shapes, step.outputs, strict=True)
            ]
            self._layer(step.layer.kind, reads, makes, settings, name)
            return
        raw = self.value(tuple(map(int, made)), "value")
        self._layer(step.layer.kind, reads, [raw], settings, name)
        result = self.value(shapes[0], "value", step.outputs[0].name)
        self._layer("view", [raw], [result], {}, name)

    def _viewed(self, number: int, wanted: object, layer: str) -> int:
        if wanted == self._shapes[number]:
            return number
        assert isinstance(wanted, tuple)
        view = self.value(wanted, "value")
        self._layer("view", [number], [view], {}, layer)
        return view

    def _constant(self, array: Array) -> int:
        import numpy as np

        self.weights += bytes(-len(self.weights) % _ALIGNMENT)
        start = len(self.weights)
        kind = array.dtype if str(array.dtype) in (*_BYTES, "int32") else np.float32
        self.weights += np.ascontiguousarray(array, kind).tobytes()
        return self.value(held(array.shape), f"constant{_width(str(array.dtype))} {start}")

    def _layer(
        self,
        kind: str,
        reads: Sequence[int],
        makes: Sequence[int],
        settings: dict[str, Setting],
        name: str,
    ) -> None:
        words = [f"{key}={_joined(value)}" for key, value in settings.items()]
        ends = (f"reads={_joined(reads)}", f"makes={_joined(makes)}")
        self.lines.append(" ".join(("layer", kind, *ends, *words, f"name={_one_line(name)}")))


def _width(dtype: str) -> str:
    """Return edgekit_program.h's code for one byte per element, or four."""
    return "8" if dtype in _BYTES else ""


def _joined(values: object) -> str:
    if isinstance(values, str):
        return values
    if isinstance(values, float):
        return values.hex()
    if isinstance(values, int):
        return str(values)
    assert hasattr(values, "__iter__")
    return ",".join(map(_joined, values))


def _one_line(name: str) -> str:
    return " ".join(name.split())
