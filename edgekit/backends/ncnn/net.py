"""A region as ncnn's own graph: layers with numbered blobs, each of them read exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.backends.base import Region, Setting, Step
from edgekit.backends.ncnn.layout import AXES, Shape, held_tensor
from edgekit.backends.ncnn.params import Precision, encode_settings, encode_weights

if TYPE_CHECKING:
    from edgekit.arrays import Array

_MAGIC = 7767517


@dataclass(frozen=True)
class NetLayer:
    kind: str
    name: str
    """In the words of the model file, for messages."""
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    """Names of blobs."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Net:
    layers: tuple[NetLayer, ...]
    inputs: tuple[str, ...]
    """The blobs of the region's inputs, in their order."""
    outputs: tuple[str, ...]

    @property
    def blobs(self) -> Mapping[str, int]:
        """By name: its number."""
        names = [name for layer in self.layers for name in layer.makes]
        return {name: number for number, name in enumerate(names)}

    def words(self) -> list[int | str]:
        """ncnn's binary graph, as 32-bit words; a layer's type by its name."""
        blobs = self.blobs
        words: list[int | str] = [_MAGIC, len(self.layers), len(blobs)]
        for layer in self.layers:
            words += [layer.kind, len(layer.reads), len(layer.makes)]
            words += [blobs[name] for name in (*layer.reads, *layer.makes)]
            words += encode_settings(layer.kind, layer.settings)
        return words

    def weights(self, precision: Precision) -> bytes:
        """All layers' weights, in the order in which ncnn reads them."""
        parts = (encode_weights(layer.kind, layer.weights, precision) for layer in self.layers)
        return b"".join(parts)


def extents(shape: Shape) -> dict[str, Setting]:
    """A shape in the words of Reshape and MemoryData."""
    return dict(zip(AXES[len(shape)], shape, strict=True))


def net_of(region: Region) -> Net:
    writer = _Writer()
    for tensor in region.inputs:
        writer.add(NetLayer("Input", tensor.name, (), (tensor.name,)))
    for step in region.steps:
        writer.add_step(step)
    outputs = tuple(tensor.name for tensor in region.outputs)
    return _each_read_once(writer.layers, tuple(t.name for t in region.inputs), outputs)


class _Writer:
    def __init__(self) -> None:
        self.layers: list[NetLayer] = []
        self._made = 0

    def add(self, layer: NetLayer) -> None:
        self.layers.append(layer)

    def add_step(self, step: Step) -> None:
        """A rule's layer; `view0` and so on are the shapes under which it reads its inputs,
        `makes` the one it gives its result, `operand0` and so on inputs that are constant."""
        name = "+".join(step.nodes) if step.nodes else "+".join(step.operators)
        settings = dict(step.layer.settings)
        weights = dict(step.layer.weights)
        reads = []
        for place, tensor in enumerate(step.inputs):
            own = held_tensor(tensor)
            wanted = settings.pop(f"view{place}", own)
            reads.append(self._viewed(name, tensor.name, own, wanted))
        for key in sorted(key for key in weights if key.startswith("operand")):
            reads.insert(int(key.removeprefix("operand")), self._constant(name, weights.pop(key)))
        made = settings.pop("makes", None)
        if made is None or made == held_tensor(step.outputs[0]):
            makes = tuple(tensor.name for tensor in step.outputs)
            self.add(NetLayer(step.layer.kind, name, tuple(reads), makes, settings, weights))
            return
        raw = self._new_blob()
        self.add(NetLayer(step.layer.kind, name, tuple(reads), (raw,), settings, weights))
        output = step.outputs[0]
        self.add(NetLayer("Reshape", name, (raw,), (output.name,), extents(held_tensor(output))))

    def _viewed(self, name: str, blob: str, own: Shape, wanted: object) -> str:
        if wanted == own:
            return blob
        assert isinstance(wanted, tuple)
        viewed = self._new_blob()
        self.add(NetLayer("Reshape", name, (blob,), (viewed,), extents(wanted)))
        return viewed

    def _constant(self, name: str, array: Array) -> str:
        blob = self._new_blob()
        settings = {**extents(array.shape), "load_type": 1}
        self.add(NetLayer("MemoryData", name, (), (blob,), settings, {"data": array}))
        return blob

    def _new_blob(self) -> str:
        self._made += 1
        return f"/{self._made}"


def _each_read_once(
    layers: Sequence[NetLayer], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> Net:
    """ncnn gives a blob to the layer that reads it, which may overwrite it: whoever else reads
    it, and the caller, gets a reference of its own through a Split."""
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
