"""ncnn regions on an emulated ARM CPU: the board's own library, under QEMU, a region at a time.

ncnn's vector code for Arm is other code than that for this machine. The rest of a model runs in the
worker of a deployment on this machine.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from edgekit.backends.base import Options, Region, Tensor
from edgekit.backends.ncnn.layout import form, held_tensor, turned_tensors
from edgekit.backends.ncnn.net import net_of
from support.arm_machine import ArmMachine, arm_library, start_machine
from support.ncnn_lab import FORMS, layer_types


def arm_machine() -> ArmMachine:
    return start_machine("ncnn")


class ArmRegion:
    """A region as support.ncnn_lab runs it, elsewhere."""

    def __init__(self, region: Region, options: Options) -> None:
        self.region = region
        types = layer_types(arm_library("ncnn"))
        net = net_of(region)
        words = [types[w] if isinstance(w, str) else w for w in net.words()]
        weights = net.weights("fp32")
        numbers, turned = net.blobs, turned_tensors(region)
        self._head = b"".join(
            (
                struct.pack(f"<{1 + len(words)}i", len(words), *words),
                struct.pack("<i", len(weights)) + weights,
                _rows(region.inputs, [numbers[name] for name in net.inputs], turned),
                _rows(region.outputs, [numbers[name] for name in net.outputs], turned),
            )
        )

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        given = b"".join(np.ascontiguousarray(value).tobytes() for value in inputs)
        return arm_machine().ask(self._head + given, self.region.outputs)


def _rows(tensors: Sequence[Tensor], blobs: Sequence[int], turned: frozenset[str]) -> bytes:
    rows = [struct.pack("<i", len(tensors))]
    for tensor, blob in zip(tensors, blobs, strict=True):
        is_turned = tensor.name in turned
        shape = held_tensor(tensor, is_turned)
        numbers = (blob, len(shape), *shape, *(0,) * (4 - len(shape)))
        rows.append(struct.pack("<7i", *numbers, FORMS.index(form(tensor, is_turned))))
    return b"".join(rows)
