"""The C++ that the regions of all libraries share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgekit.backends.base import Region, Tensor
from edgekit.base.quoting import c_string

INCLUDE = Path(__file__).parent / "include"
"""The folder of edgekit_region.h."""

_DLPACK_CODES = {"int": "kDLInt", "uint": "kDLUInt", "float": "kDLFloat", "bfloat": "kDLBfloat"}
_DTYPE = re.compile(r"([a-z]+)([0-9]+)")


def region_source(
    region: Region,
    headers: Iterable[str],
    class_source: str,
    name: str,
    blobs: Mapping[str, bytes] | None = None,
) -> str:
    """Return a complete file; `class_source` defines the class `name` for edgekit_region.h.

    The class sees each blob as an `edgekit::Blob` of the blob's name.
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
    """Return the linker's name of a region's blob."""
    return f"{symbol}_{blob}"


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
