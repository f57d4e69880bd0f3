"""Weights as read-only data of the library, and the function that returns a view of one.

Their pages are read from the file at first use and shared by all processes that run the model. The
system may drop them when memory is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.files import storage_errors
from edgekit.cross.blob import write_blob

WEIGHT_FUNCTION = "edgekit_weight"
"""The library's function that TVM's virtual machine calls with a weight's number."""

LEAST_BYTES = 4096
"""The least size of a weight to map. Smaller ones are copied at the start, which is faster."""

_ALIGNMENT = 64
"""The alignment that TVM's kernels require."""

_SYMBOL = "edgekit_weights"
_DATA, _CODE = f"{_SYMBOL}.bin", f"{_SYMBOL}.c"


@dataclass(frozen=True)
class Weight:
    """A tensor. The first three fields describe an element as DLPack does."""

    type_code: int
    bits: int
    lanes: int
    shape: tuple[int, ...]
    content: bytes


def write_weights(weights: Sequence[Weight], folder: Path) -> tuple[str, ...]:
    """Write the sources of the weights into `folder`, and return their names for the linker."""
    if not weights:
        return ()
    with storage_errors("write the weights", folder):
        offsets = []
        with (folder / _DATA).open("wb") as stream:
            for weight in weights:
                stream.write(bytes(-stream.tell() % _ALIGNMENT))
                offsets.append(stream.tell())
                stream.write(weight.content)
        assembly = write_blob(folder, _SYMBOL, _DATA, alignment=_ALIGNMENT)
        code = "\n".join(_code(weights, offsets)) + "\n"
        (folder / _CODE).write_text(code, encoding="ascii")
    return _CODE, assembly


def _code(weights: Sequence[Weight], offsets: Sequence[int]) -> Iterator[str]:
    """Write C for TVM's stable interface.

    The function returns a plain pointer to a tensor's description: nothing is allocated or counted.
    """
    yield "#include <tvm/ffi/c_api.h>"
    yield f'extern const unsigned char {_SYMBOL}[] __attribute__((visibility("hidden")));'
    for number, weight in enumerate(weights):
        extents = ", ".join(map(str, weight.shape))
        strides = ", ".join(map(str, _strides(weight.shape)))
        yield f"static const int64_t shape_{number}[] = {{{extents}}};"
        yield f"static const int64_t strides_{number}[] = {{{strides}}};"
    yield "static const DLTensor tensors[] = {"
    for number, (weight, offset) in enumerate(zip(weights, offsets, strict=True)):
        kind = f"{{{weight.type_code}, {weight.bits}, {weight.lanes}}}"
        yield (
            f"  {{(void*)({_SYMBOL} + {offset}), {{kDLCPU, 0}}, {len(weight.shape)}, {kind}, "
            f"(int64_t*)shape_{number}, (int64_t*)strides_{number}, 0}},"
        )
    yield "};"
    yield '__attribute__((visibility("default"))) int'
    yield f"__tvm_ffi_{WEIGHT_FUNCTION}(void* self, const TVMFFIAny* args, int32_t count,"
    yield "                           TVMFFIAny* result) {"
    yield "  (void)self;"
    yield "  if (count != 1 || args[0].type_index != kTVMFFIInt) return 0;"
    yield f"  if (args[0].v_uint64 >= {len(weights)}) return 0;"
    yield "  result->type_index = kTVMFFIDLTensorPtr;"
    yield "  result->v_ptr = (void*)&tensors[args[0].v_int64];"
    yield "  return 0;"
    yield "}"


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)
