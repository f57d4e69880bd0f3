"""The C++ that every region has, whichever library runs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgekit.backends.base import Region, Tensor
from edgekit.base.quoting import c_string

INCLUDE = Path(__file__).parent / "include"
"""Where edgekit_region.h is."""

_DLPACK_CODES = {"int": "kDLInt", "uint": "kDLUInt", "float": "kDLFloat", "bfloat": "kDLBfloat"}
_DTYPE = re.compile(r"([a-z]+)([0-9]+)")


def region_source(
    region: Region,
    headers: Iterable[str],
    class_source: str,
    name: str,
    blobs: Mapping[str, bytes] | None = None,
) -> str:
    """A complete file: `class_source` defines the class `name` that edgekit_region.h describes.

    Each blob is an `edgekit::Blob` of its name there.
    """
    embedded = blobs or {}
    includes = "\n".join(f'#include "{header}"' for header in ("edgekit_region.h", *headers))
    return f"""\
{includes}
{"".join(_declaration(region, blob) for blob in embedded)}
namespace {{

{"".join(_blob(region, blob, len(content)) for blob, content in embedded.items())}
{class_source.strip()}

{_tensors("inputs", region.inputs)}
{_tensors("outputs", region.outputs)}
}}  // namespace

EDGEKIT_REGION({region.symbol}, {name}, inputs, outputs)
"""


def blob_symbol(symbol: str, blob: str) -> str:
    """The linker's name of a region's blob."""
    return f"{symbol}_{blob}"


def floats(values: Iterable[float]) -> str:
    """Literals that mean exactly these single-precision values."""
    return ", ".join(float_literal(value) for value in values)


def float_literal(value: float) -> str:
    if value != value:
        return "std::numeric_limits<float>::quiet_NaN()"
    if value in (float("inf"), float("-inf")):
        sign = "-" if value < 0 else ""
        return f"{sign}std::numeric_limits<float>::infinity()"
    return f"{float(value).hex()}f"


def _declaration(region: Region, blob: str) -> str:
    symbol = blob_symbol(region.symbol, blob)
    return f'extern "C" const unsigned char {symbol}[];\n'


def _blob(region: Region, blob: str, size: int) -> str:
    return f"const edgekit::Blob {blob}{{{blob_symbol(region.symbol, blob)}, {size}}};\n"


def _tensors(name: str, tensors: tuple[Tensor, ...]) -> str:
    rows = "\n".join(f"    {_tensor(tensor)}," for tensor in tensors)
    return f"const edgekit::Tensor {name}[] = {{\n{rows}\n}};"


def _tensor(tensor: Tensor) -> str:
    shape = ", ".join(str(extent) for extent in tensor.shape) or "0"
    return f"{{{c_string(tensor.name)}, {len(tensor.shape)}, {{{shape}}}, {_dtype(tensor.dtype)}}}"


def _dtype(dtype: str) -> str:
    match = _DTYPE.fullmatch(dtype)
    if dtype == "bool":
        return "{kDLBool, 8, 1}"
    assert match is not None
    return f"{{{_DLPACK_CODES[match[1]]}, {match[2]}, 1}}"
