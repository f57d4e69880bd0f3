"""A TFLite file as checked plain data: every index in a `TfliteFile` is valid.

Field numbers are those of the public schema (version 3, identifier "TFL3").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.errors import MissingToolError, ModelError, StorageError
from edgekit.base.tensors import Quantization
from edgekit.base.wording import counted, size
from edgekit.models.tflite.flatbuffer import Buffer, DamagedBufferError, Table

IDENTIFIER = b"TFL3"
MAX_FILE_BYTES = 2**31 - 1
MAX_TENSOR_BYTES = 2**31 - 1
MAX_RANK = 8
DTYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    5: "string",
    6: "bool",
    7: "int16",
    8: "complex64",
    9: "int8",
    10: "float64",
    12: "uint64",
    13: "resource",
    15: "uint32",
    16: "uint16",
}
BYTES_PER_ELEMENT = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float16": 2,
    "int16": 2,
    "uint16": 2,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
}


VariableKey = tuple[str, str]
"""The container and the name of a variable, as the file has them."""
_TENSOR = "variable tensor"
"""What stands for the container of a variable that is a tensor of the main graph."""
_CALLS = {"CALL": 1, "CALL_ONCE": 1, "IF": 2, "WHILE": 2}
"""The number of graphs that an operator calls."""


def tensor_key(index: int) -> VariableKey:
    """Return the key of a variable that is a tensor of the main graph."""
    return _TENSOR, str(index)


@dataclass(frozen=True)
class TfliteTensor:
    name: str
    """The name, unique within its graph, unlike in the file."""
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    """The declared shape, with -1 for open dimensions."""
    quantization: Quantization | None
    constant_bytes: int
    constant_at: int
    """The place of a constant's bytes in the file."""
    variable: bool
    sparse: bool

    @property
    def is_constant(self) -> bool:
        return self.constant_bytes > 0

    @property
    def open_dimensions(self) -> tuple[int, ...]:
        return tuple(i for i, extent in enumerate(self.signature) if extent < 0)


@dataclass(frozen=True)
class TfliteOperator:
    name: str
    inputs: tuple[int, ...]
    """Indices into the graph's tensors; -1 for an optional one left out."""
    outputs: tuple[int, ...]
    graphs: tuple[int, ...] = ()
    """The graphs that the operator calls, in the order of its options."""
    variable: VariableKey = ("", "")
    """The variable that VAR_HANDLE stands for."""


@dataclass(frozen=True)
class TfliteGraph:
    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class TfliteFile:
    data: bytes
    version: int
    graphs: tuple[TfliteGraph, ...]

    @property
    def main(self) -> TfliteGraph:
        return self.graphs[0]


def read_tflite(path: Path) -> TfliteFile:
    """Read the file's content as plain data; ModelError says what is wrong with it."""
    data = _bytes_of(path)
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise ModelError(
            f"{path.name} is not a TFLite model: {_looks_like(data)}",
            hint="a TFLite file has the letters TFL3 in bytes 4 to 7; export or download it again",
        )
    try:
        return _model(data)
    except DamagedBufferError as damage:
        raise ModelError(
            f"{path.name} is a damaged TFLite model: {damage}",
            hint="compare its size with the original; a download may have been cut off",
        ) from damage


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(
                f"{path.name} is larger than 2 GiB, which no TFLite file can be",
                hint="check that this is the model and not an archive or a disk image",
            )
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ModelError(f"{path} is not a file", hint="check the path to the model") from error
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error


def _looks_like(data: bytes) -> str:
    if not data:
        return "it is empty"
    if len(data) < 8:
        return f"it has only {counted(len(data), 'byte')}"
    if all(byte in b"\t\n\r\f\b\x1b" or 32 <= byte < 127 for byte in data[:256]):
        return "it is a text file"
    return "it does not carry the TFLite identifier"


def _model(data: bytes) -> TfliteFile:
    root = Buffer(data).root()
    codes = [_operator_name(code) for code in root.tables(1)]
    buffers = [_buffer_span(entry) for entry in root.tables(4)]
    graphs = tuple(_graph(table, codes, buffers) for table in root.tables(2))
    version = root.number(0, "I")
    if version != 3:
        raise DamagedBufferError(f"it says schema version {version}, and only 3 exists")
    if not graphs:
        raise DamagedBufferError("it holds no graph")
    _check_calls(graphs)
    return TfliteFile(data, version, graphs)


def _operator_name(code: Table) -> str:
    number = max(code.number(0, "b"), code.number(3, "i"))
    names = _builtin_operators()
    name = names.get(number, f"operator number {number}")
    return f"CUSTOM:{code.text(1) or '?'}" if name == "CUSTOM" else name


def _builtin_operators() -> dict[int, str]:
    try:
        from tflite.BuiltinOperator import BuiltinOperator
    except ImportError as error:
        raise MissingToolError(
            "reading TFLite models needs the Python package tflite",
            hint="pip install 'edgekit[tflite]'",
        ) from error
    return {value: name for name, value in vars(BuiltinOperator).items() if isinstance(value, int)}


def _check_calls(graphs: tuple[TfliteGraph, ...]) -> None:
    """Check that every graph that is called exists, and that none calls itself."""
    called = [{g for operator in graph.operators for g in operator.graphs} for graph in graphs]
    for number in sorted(set().union(*called)):
        if not 0 <= number < len(graphs):
            raise DamagedBufferError(f"it calls graph {number}, which does not exist")
    left = set(range(len(graphs)))
    while leaves := {number for number in left if not called[number] & left}:
        left -= leaves
    if left:
        raise DamagedBufferError(f"its graph {min(left)} calls itself")


def values_of(file: TfliteFile, tensor: TfliteTensor) -> Array:
    """Return a constant's values."""
    if tensor.sparse or tensor.dtype not in BYTES_PER_ELEMENT:
        raise ValueError(f"the values of '{tensor.name}' are packed")
    count = math.prod(tensor.shape)
    array = np.frombuffer(file.data, tensor.dtype, count, tensor.constant_at)
    return array.reshape(tensor.shape)


def _buffer_span(table: Table) -> tuple[int, int]:
    if table.number(1, "Q") > 1:
        raise DamagedBufferError("it keeps weights outside the FlatBuffer, which is not supported")
    return table.span(0) or (0, 0)


def _graph(table: Table, codes: list[str], buffers: list[tuple[int, int]]) -> TfliteGraph:
    taken: set[str] = set()
    tensors = tuple(
        _tensor(entry, index, buffers, taken) for index, entry in enumerate(table.tables(0))
    )
    operators = tuple(_operator(entry, codes, len(tensors)) for entry in table.tables(3))
    return TfliteGraph(
        tensors,
        operators,
        inputs=_indices(table, 1, len(tensors)),
        outputs=_indices(table, 2, len(tensors)),
    )


def _tensor(
    table: Table, index: int, buffers: list[tuple[int, int]], taken: set[str]
) -> TfliteTensor:
    name = _unique(table.text(3) or f"tensor_{index}", index, taken)
    shape = table.integers(0)
    signature = table.integers(7) or shape
    number = table.number(1, "b")
    dtype = DTYPES.get(number, f"type number {number}")
    buffer = table.number(2, "I")
    sparse = table.table(6) is not None
    if len(shape) > MAX_RANK or len(signature) != len(shape):
        raise DamagedBufferError(f"tensor '{name}' has an impossible shape {list(shape)}")
    if any(extent < 0 for extent in shape):
        raise DamagedBufferError(f"tensor '{name}' has a negative dimension")
    needed = math.prod(shape) * BYTES_PER_ELEMENT.get(dtype, 1)
    if needed > MAX_TENSOR_BYTES:
        raise DamagedBufferError(f"tensor '{name}' would take {size(needed)}")
    if buffer >= len(buffers):
        raise DamagedBufferError(f"tensor '{name}' uses buffer {buffer}, which does not exist")
    place, stored = buffers[buffer]
    if stored and not sparse and dtype in BYTES_PER_ELEMENT and stored != needed:
        raise DamagedBufferError(
            f"tensor '{name}' needs {counted(needed, 'byte')} of data, but has {stored}"
        )
    return TfliteTensor(
        name=name,
        dtype=dtype,
        shape=shape,
        signature=signature,
        quantization=_quantization(table.table(4), name, shape),
        constant_bytes=stored,
        constant_at=place,
        variable=bool(table.number(5, "?")),
        sparse=sparse,
    )


def _unique(name: str, index: int, taken: set[str]) -> str:
    if name in taken:
        name = f"{name}#{index}"
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _quantization(table: Table | None, name: str, shape: tuple[int, ...]) -> Quantization | None:
    if table is None:
        return None
    scales = table.numbers(2, "f") or ()
    zero_points = table.integers(3, "q")
    if not scales:
        return None
    axis = table.number(6, "i")
    per_axis = len(scales) > 1
    fits_axis = 0 <= axis < len(shape) and len(scales) == shape[axis] if per_axis else True
    if not fits_axis or len(zero_points) != len(scales):
        raise DamagedBufferError(f"tensor '{name}' has quantisation that does not fit its shape")
    if not all(math.isfinite(scale) and scale >= 0 for scale in scales):
        raise DamagedBufferError(f"tensor '{name}' has a quantisation scale that is no number")
    return Quantization(scales, zero_points, axis if per_axis else None)


def _operator(table: Table, codes: list[str], tensors: int) -> TfliteOperator:
    code = table.number(0, "I")
    if code >= len(codes):
        raise DamagedBufferError(f"an operator has code {code}, which does not exist")
    options = table.table(4)  # They must lie inside the file, too, whatever their type.
    table.span(5)
    name = codes[code]
    return TfliteOperator(
        name,
        inputs=_indices(table, 1, tensors, optional=True),
        outputs=_indices(table, 2, tensors),
        graphs=tuple(
            options.number(field, "i") if options else 0 for field in range(_CALLS.get(name, 0))
        ),
        variable=_variable(options) if name == "VAR_HANDLE" and options else ("", ""),
    )


def _variable(options: Table) -> VariableKey:
    return options.text(0) or "", options.text(1) or ""


def _indices(table: Table, field: int, tensors: int, optional: bool = False) -> tuple[int, ...]:
    indices = table.integers(field)
    lowest = -1 if optional else 0
    for index in indices:
        if not lowest <= index < tensors:
            raise DamagedBufferError(f"it names tensor {index}, which does not exist")
    return indices
