"""A region as an ncnn graph: layers with numbered blobs, each read exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from edgekit.backends.base import Region, Setting, Step, Tensor
from edgekit.backends.ncnn.layout import AXES, Shape, held_tensor, turned_tensors
from edgekit.backends.ncnn.params import Precision, encode_settings, encode_weights

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

_MAGIC = 7767517
_MINUS_SCALAR, _FROM_SCALAR = 1, 7
"""BinaryOp's operator numbers for subtractions."""
_VECTOR = 4
_LOWEST = -3.4028234663852886e38
"""The lowest finite float32."""


@dataclass(frozen=True)
class NetLayer:
    kind: str
    name: str
    """The layer's name in the model file, for messages."""
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    """The names of the blobs that the layer makes."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Net:
    layers: tuple[NetLayer, ...]
    inputs: tuple[str, ...]
    """The blobs of the region's inputs, in order."""
    outputs: tuple[str, ...]

    @property
    def blobs(self) -> Mapping[str, int]:
        """Number the blobs by name."""
        names = [name for layer in self.layers for name in layer.makes]
        return {name: number for number, name in enumerate(names)}

    def words(self) -> list[int | str]:
        """Return ncnn's binary graph as 32-bit words; a layer's type stays a name."""
        blobs = self.blobs
        words: list[int | str] = [_MAGIC, len(self.layers), len(blobs)]
        for layer in self.layers:
            words += [layer.kind, len(layer.reads), len(layer.makes)]
            words += [blobs[name] for name in (*layer.reads, *layer.makes)]
            words += encode_settings(layer.kind, layer.settings)
        return words

    def weights(self, precision: Precision) -> bytes:
        """Return all weights, in the order in which ncnn reads them."""
        parts = (encode_weights(layer.kind, layer.weights, precision) for layer in self.layers)
        return b"".join(parts)


def extents(shape: Shape) -> dict[str, Setting]:
    """Return a shape as settings of Reshape and MemoryData."""
    return dict(zip(AXES[len(shape)], shape, strict=True))


def net_of(region: Region) -> Net:
    writer = _Writer(turned_tensors(region))
    for tensor in region.inputs:
        writer.add(NetLayer("Input", tensor.name, (), (tensor.name,)))
    for step in region.steps:
        writer.add_step(step)
    outputs = tuple(tensor.name for tensor in region.outputs)
    layers = _reshaped_once(writer.layers, outputs)
    return _each_read_once(layers, tuple(t.name for t in region.inputs), outputs)


class _Writer:
    def __init__(self, turned: frozenset[str]) -> None:
        self.layers: list[NetLayer] = []
        self._turned = turned
        self._made = 0

    def add(self, layer: NetLayer) -> None:
        self.layers.append(layer)

    def add_step(self, step: Step) -> None:
        """Add a rule's layer. `view0` and so on are the shapes under which it reads its inputs,
        `makes` is the shape of its result, `operand0` and so on are constant inputs."""
        name = "+".join(step.nodes) if step.nodes else "+".join(step.operators)
        settings = dict(step.layer.settings)
        settings.pop("channels_last", None)
        weights = dict(step.layer.weights)
        reads = []
        for place, tensor in enumerate(step.inputs):
            own = self._held(tensor)
            wanted = settings.pop(f"view{place}", own)
            reads.append(self._viewed(name, tensor.name, own, wanted))
        for key in sorted(key for key in weights if key.startswith("operand")):
            reads.insert(int(key.removeprefix("operand")), self._constant(name, weights.pop(key)))
        if step.layer.kind == "ArgMax":
            self._add_largest(name, reads[0], step)
            return
        made = settings.pop("makes", None)
        if made is None or made == self._held(step.outputs[0]):
            makes = tuple(tensor.name for tensor in step.outputs)
            self.add(NetLayer(step.layer.kind, name, tuple(reads), makes, settings, weights))
            return
        raw = self._new_blob()
        self.add(NetLayer(step.layer.kind, name, tuple(reads), (raw,), settings, weights))
        output = step.outputs[0]
        self.add(NetLayer("Reshape", name, (raw,), (output.name,), extents(self._held(output))))

    def _add_largest(self, name: str, blob: str, step: Step) -> None:
        """Add an argmax. ncnn returns the last of several equal largest elements, so the row is
        reversed to get the first. ncnn reads whole vectors, so a shorter row is padded in front
        with values that are never the last largest."""
        row, is_first = step.layer.settings["row"], bool(step.layer.settings["first"])
        assert isinstance(row, int)
        before = -row % _VECTOR
        if is_first:
            blob = self._through("Flip", name, blob, {"axes": (0,)})
        if before:
            blob = self._through("Padding", name, blob, {"left": before, "value": _LOWEST})
        blob = self._through("ArgMax", name, blob, {"topk": 1})
        if is_first:
            blob = self._with_scalar(name, blob, _FROM_SCALAR, row - 1 + before)
        elif before:
            blob = self._with_scalar(name, blob, _MINUS_SCALAR, before)
        output = step.outputs[0]
        self.add(NetLayer("Reshape", name, (blob,), (output.name,), extents(self._held(output))))

    def _with_scalar(self, name: str, blob: str, operation: int, value: int) -> str:
        settings = {"op_type": operation, "with_scalar": 1, "b": float(value)}
        return self._through("BinaryOp", name, blob, settings)

    def _held(self, tensor: Tensor) -> Shape:
        return held_tensor(tensor, tensor.name in self._turned)

    def _through(self, kind: str, name: str, blob: str, settings: Mapping[str, Setting]) -> str:
        made = self._new_blob()
        self.add(NetLayer(kind, name, (blob,), (made,), settings))
        return made

    def _viewed(self, name: str, blob: str, own: Shape, wanted: object) -> str:
        if wanted == own:
            return blob
        assert isinstance(wanted, tuple)
        return self._through("Reshape", name, blob, extents(wanted))

    def _constant(self, name: str, array: Array) -> str:
        blob = self._new_blob()
        settings = {**extents(array.shape), "load_type": 1}
        self.add(NetLayer("MemoryData", name, (), (blob,), settings, {"data": array}))
        return blob

    def _new_blob(self) -> str:
        self._made += 1
        return f"/{self._made}"


def _reshaped_once(layers: Sequence[NetLayer], outputs: tuple[str, ...]) -> list[NetLayer]:
    """Keep only the last of consecutive Reshapes: an intermediate shape may have gaps, which costs
    two copies."""
    sources = {layer.makes[0]: layer.reads[0] for layer in layers if layer.kind == "Reshape"}

    def origin(blob: str) -> str:
        while blob in sources:
            blob = sources[blob]
        return blob

    direct = [
        replace(layer, reads=(origin(layer.reads[0]),)) if layer.kind == "Reshape" else layer
        for layer in layers
    ]
    read = {blob for layer in direct for blob in layer.reads} | set(outputs)
    return [layer for layer in direct if layer.kind != "Reshape" or layer.makes[0] in read]


def _each_read_once(
    layers: Sequence[NetLayer], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> Net:
    """Insert a Split for each blob with several readers: an ncnn layer may overwrite the blob that
    it reads, so every other reader, and the caller, needs its own reference."""
    reads = Counter(name for layer in layers for name in layer.reads)
    reads.update(outputs)
    copies = {
        name: [f"{name}/{number}" for number in range(count)]
        for name, count in reads.items()
        if count > 1
    }
    left = {name: list(reversed(names)) for name, names in copies.items()}

    def own(name: str) -> str:
        return left[name].pop() if name in left else name

    result = []
    for layer in layers:
        taken = tuple(own(name) for name in layer.reads)
        result.append(
            NetLayer(layer.kind, layer.name, taken, layer.makes, layer.settings, layer.weights)
        )
        result += [
            NetLayer("Split", layer.name, (name,), tuple(copies[name]))
            for name in layer.makes
            if name in copies
        ]
    return Net(tuple(result), inputs, tuple(own(name) for name in outputs))
