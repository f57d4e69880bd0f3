"""ncnn regions at once, without a C++ compiler for each: what the header does, on numpy arrays.

One small library is compiled for all tests. `offloaded` lets a model's regions run in it while
TVM runs the rest in this process; real builds, which the few tests of generated C++ make, differ
only in where the numbers stand.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from edgekit.agent.runtime import ffi_headers
from edgekit.backends.base import Options, Region
from edgekit.backends.ncnn import BACKEND
from edgekit.backends.ncnn.codegen import precision_of, settings_of
from edgekit.backends.ncnn.layout import held_tensor
from edgekit.backends.ncnn.net import net_of
from edgekit.backends.partition import Selection
from edgekit.backends.plan import options_of
from edgekit.backends.source import INCLUDE
from edgekit.board import load_board
from edgekit.cross.sources import BuiltLibrary, built_in_recipe, find_library
from edgekit.cross.toolchain import find_cxx_compiler, load_toolchain
from edgekit.cross.tools import run_tool
from edgekit.model import Model
from edgekit.offload import Rates
from edgekit.pipeline import compile_model

EVERYTHING_PAYS = Rates(call_us=-1e12)
"""A region is worth its boundary, whatever it saves."""


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
    _fields_ = (("threads", ctypes.c_int), ("switches", ctypes.c_bool * 8))


class _Tensor(ctypes.Structure):
    """DLPack's, as far as the header reads it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Lab:
    library: ctypes.CDLL
    types: dict[str, int]
    """ncnn's numbers of its layers."""


@lru_cache(maxsize=1)
def _library() -> BuiltLibrary | None:
    board = load_board("local")
    return find_library(built_in_recipe("ncnn"), board, load_toolchain(board.toolchain))


@lru_cache(maxsize=1)
def lab() -> Lab:
    """Skips the test where ncnn is not built for this machine yet: that takes minutes."""
    library = _library()
    if library is None:
        pytest.skip("ncnn is not built for this machine: edgekit toolchains build local")
    compiler = find_cxx_compiler(load_toolchain(load_board("local").toolchain))
    made = tempfile.TemporaryDirectory(prefix="edgekit-ncnn-lab-")
    atexit.register(made.cleanup)
    folder = Path(made.name)
    out = folder / "lab.so"
    includes = (INCLUDE, BACKEND.include, ffi_headers(), *library.include)
    command = (
        *compiler.command,
        *("-std=c++17", "-O2", "-fPIC", "-shared", "-o", str(out)),
        *(word for path in includes for word in ("-I", str(path))),
        str(Path(__file__).with_suffix(".cc")),
        *library.link,
    )
    run_tool(command, folder=folder, doing="compile the lab")
    loaded = ctypes.CDLL(str(out))
    loaded.lab_problem.restype = ctypes.c_char_p
    loaded.lab_copied.restype = ctypes.c_uint64
    return Lab(loaded, layer_types(library))


def layer_types(library: BuiltLibrary) -> dict[str, int]:
    """ncnn's numbers of its layers, by name."""
    enum = (library.include[0] / "ncnn" / "layer_type_enum.h").read_text(encoding="ascii")
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", enum)}


class RegionRunner:
    """One region, as an ncnn::Net."""

    def __init__(self, region: Region, options: Options, weights: bytes | None = None) -> None:
        self._lab = lab()
        self.region = region
        net = net_of(region)
        words = [self._lab.types[w] if isinstance(w, str) else w for w in net.words()]
        self._words = np.array(words, np.int32)
        blob = net.weights(precision_of(options)) if weights is None else weights
        self._weights = ctypes.create_string_buffer(blob, len(blob) or 1)
        numbers = net.blobs
        self._inputs = _held(region.inputs, [numbers[name] for name in net.inputs])
        self._outputs = _held(region.outputs, [numbers[name] for name in net.outputs])
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
        settings = _Settings(threads, (ctypes.c_bool * 8)(*switches))
        self._runner = ctypes.c_void_p()
        self._check(
            self._lab.library.lab_new(
                ctypes.byref(graph), ctypes.byref(settings), ctypes.byref(self._runner)
            )
        )

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        outputs = [
            np.full(tensor.shape, 7e33 if tensor.dtype == "float32" else 77, tensor.dtype)
            for tensor in self.region.outputs
        ]
        given = [aligned(value) for value in inputs]
        self._check(self._lab.library.lab_run(self._runner, _tensors(given), _tensors(outputs)))
        return outputs

    @property
    def copied(self) -> int:
        """Bytes, in all calls."""
        return int(self._lab.library.lab_copied(self._runner))

    def _check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self._lab.library.lab_problem().decode())

    def __del__(self) -> None:
        if getattr(self, "_runner", None):
            self._lab.library.lab_free(self._runner)


def aligned(values: np.ndarray) -> np.ndarray:
    """Where TVM would have it: at a multiple of 64 bytes; not copied if it is there."""
    if values.ctypes.data % 64 == 0 and values.flags.c_contiguous:
        return values
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def _held(tensors: Sequence[object], blobs: Sequence[int]) -> ctypes.Array[_Held]:
    rows = []
    for tensor, blob in zip(tensors, blobs, strict=True):
        shape = held_tensor(tensor)
        extents = (ctypes.c_int * 4)(*shape)
        stored = int(tensor.dtype == "int8")
        rows.append(_Held(tensor.name.encode(), blob, len(shape), extents, stored))
    return (_Held * len(rows))(*rows)


def _tensors(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    kept = [_Tensor(data=array.ctypes.data) for array in arrays]
    pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(tensor) for tensor in kept))
    pointers.kept = kept
    return pointers


def ncnn_selection(**options: object) -> Selection:
    return Selection(((BACKEND, options_of(BACKEND, options)),), rates=EVERYTHING_PAYS)


@dataclass(frozen=True)
class Offloaded:
    outputs: list[np.ndarray]
    regions: tuple[Region, ...]
    left: tuple[str, ...]
    """Operators that stayed in TVM, with the reason."""
    copied: int


class Runs(Protocol):
    """A region wherever it runs."""

    region: Region

    @property
    def copied(self) -> int: ...

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]: ...


def offloaded(
    model: Model,
    inputs: Sequence[np.ndarray],
    start: Callable[[Region, Options], Runs] = RegionRunner,
    **options: object,
) -> Offloaded:
    """The model with everything in ncnn that ncnn takes, and TVM for the rest."""
    import tvm
    import tvm_ffi
    from tvm import relax

    selection = ncnn_selection(threads=1, **options)
    compiled = compile_model(model, load_board("local").target, offload=selection)
    runners = {
        region.symbol: start(region, selection.backends[0][1]) for region in compiled.regions
    }
    for symbol, runner in runners.items():

        def call(*tensors: object, runner: Runs = runner) -> None:
            count = len(runner.region.inputs)
            made = runner(*(tensor.numpy() for tensor in tensors[:count]))
            for tensor, value in zip(tensors[count:], made, strict=True):
                tensor.copyfrom(value)

        tvm_ffi.register_global_func(symbol, call, override=True)
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(value)) for value in inputs]
    results = relax.VirtualMachine(compiled.executable, tvm.cpu())["main"](*arguments)
    results = [results] if len(model.outputs) == 1 else list(results)
    return Offloaded(
        [result.numpy() for result in results],
        compiled.regions,
        tuple(f"{d.operator}: {d.reason}" for d in compiled.decisions if d.backend is None),
        sum(runner.copied for runner in runners.values()),
    )
