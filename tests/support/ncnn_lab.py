"""ncnn regions at once, without a C++ compiler for each: region_lab.py with ncnn's header."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.base import Options, Region, Tensor
from edgekit.backends.ncnn.codegen import precision_of, settings_of
from edgekit.backends.ncnn.layout import form, held_tensor, turned_tensors
from edgekit.backends.ncnn.net import net_of
from edgekit.cross.sources import BuiltLibrary
from support.region_lab import LabRegion, Runs, compiled_lab, library_here

if TYPE_CHECKING:
    from edgekit.backends.partition import Selection
    from edgekit.models.model import Model
    from support.offloaded import Offloaded


FORMS = ("kFloats", "kPlace", "kStored", "kStoredUnsigned", "kTurned")
"""The forms of a tensor, in the order of edgekit_ncnn.h."""


class _Held(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("blob", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("extents", ctypes.c_int * 4),
        ("form", ctypes.c_int),
    )


class _Named(ctypes.Structure):
    _fields_ = (("layer", ctypes.c_char_p), ("blob", ctypes.c_int))


class _Graph(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("weights", ctypes.c_void_p),
        ("weights_size", ctypes.c_size_t),
        ("inputs", ctypes.POINTER(_Held)),
        ("input_count", ctypes.c_int),
        ("outputs", ctypes.POINTER(_Held)),
        ("output_count", ctypes.c_int),
        ("layers", ctypes.POINTER(_Named)),
        ("layer_count", ctypes.c_size_t),
    )


class _Settings(ctypes.Structure):
    _fields_ = (("threads", ctypes.c_int), ("switches", ctypes.c_bool * 10))


@dataclass(frozen=True)
class Lab:
    library: ctypes.CDLL
    types: dict[str, int]
    """ncnn's numbers of its layers."""


@lru_cache(maxsize=2)
def lab(vulkan: bool = False) -> Lab:
    """The lab of ncnn, compiled once for a process."""
    name = "ncnn-vulkan" if vulkan else "ncnn"
    loaded = compiled_lab(name)
    loaded.lab_copied.restype = ctypes.c_uint64
    loaded.lab_heard.restype = ctypes.c_char_p
    return Lab(loaded, layer_types(library_here(name)))


def layer_types(library: BuiltLibrary) -> dict[str, int]:
    """ncnn's numbers of its layers, by name."""
    enum = (library.include[0] / "ncnn" / "layer_type_enum.h").read_text(encoding="ascii")
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", enum)}


class RegionRunner(LabRegion):
    """One region, as an ncnn::Net."""

    copied = 0
    """Bytes, in the last call."""
    heard = ""
    """What the region said last."""

    def __init__(self, region: Region, options: Options, weights: bytes | None = None) -> None:
        own = lab(bool(options["vulkan"]))
        super().__init__(region, own.library)
        net = net_of(region)
        words = [own.types[w] if isinstance(w, str) else w for w in net.words()]
        self._words = np.array(words, np.int32)
        blob = net.weights(precision_of(options)) if weights is None else weights
        self._weights = ctypes.create_string_buffer(blob, len(blob) or 1)
        numbers = net.blobs
        turned = turned_tensors(region)
        self._inputs = _held(region.inputs, [numbers[name] for name in net.inputs], turned)
        self._outputs = _held(region.outputs, [numbers[name] for name in net.outputs], turned)
        named = [
            _Named(layer.name.encode(), numbers[layer.makes[0]])
            for layer in net.layers
            if layer.kind not in ("Input", "Split")
        ]
        self._layers = (_Named * len(named))(*named)
        graph = _Graph(
            *(self._words.ctypes.data, self._words.nbytes),
            *(ctypes.addressof(self._weights), len(blob)),
            *(self._inputs, len(region.inputs), self._outputs, len(region.outputs)),
            *(self._layers, len(named)),
        )
        threads, *switches = settings_of(options)
        settings = _Settings(threads, (ctypes.c_bool * 10)(*switches))
        made = self.lab.lab_new(
            ctypes.byref(graph), ctypes.byref(settings), ctypes.byref(self.runner)
        )
        self.check(made)
        self.heard = own.library.lab_heard().decode()

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Twice: where a result's form is known from the first call, the second computes it in
        the caller's tensor."""
        first = super().__call__(*inputs)
        before = int(self.lab.lab_copied(self.runner))
        again = super().__call__(*inputs)
        self.copied = int(self.lab.lab_copied(self.runner)) - before
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        return again


def _held(
    values: Sequence[Tensor], blobs: Sequence[int], turned: frozenset[str]
) -> ctypes.Array[_Held]:
    rows = []
    for tensor, blob in zip(values, blobs, strict=True):
        is_turned = tensor.name in turned
        shape = held_tensor(tensor, is_turned)
        extents = (ctypes.c_int * 4)(*shape)
        number = FORMS.index(form(tensor, is_turned))
        rows.append(_Held(tensor.name.encode(), blob, len(shape), extents, number))
    return (_Held * len(rows))(*rows)


def ncnn_selection(**options: object) -> Selection:
    from support.offloaded import selection_for

    return selection_for("ncnn", **options)


def offloaded(
    model: Model,
    inputs: Sequence[np.ndarray],
    start: Callable[[Region, Options], Runs] = RegionRunner,
    **options: object,
) -> Offloaded:
    """Run the model with everything in ncnn that ncnn takes, and TVM's kernels for the rest."""
    from support.offloaded import run_offloaded

    return run_offloaded(model, inputs, ncnn_selection(threads=1, **options), start)
