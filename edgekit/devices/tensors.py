"""Named tensors of a bundle, in the order in which a device takes and returns them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.base.errors import BundleError, DeviceError
from edgekit.base.varying import padded, trimmed, with_lengths

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec
    from edgekit.bundle.folder import Bundle

_NPY_HEADER = 1 << 16


def in_order(bundle: Bundle, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the inputs of the bundle's program: padded to their largest size, then the lengths."""
    return padded([entry.spec for entry in bundle.manifest.inputs], inputs)


def program_outputs(bundle: Bundle) -> tuple[TensorSpec, ...]:
    """Return the outputs of the bundle's program, with the lengths."""
    manifest = bundle.manifest
    inputs = [entry.spec for entry in manifest.inputs]
    return with_lengths(inputs, [entry.spec for entry in manifest.outputs])[1]


def named_outputs(
    bundle: Bundle, arrays: Sequence[Array], inputs: Sequence[Array]
) -> dict[str, Array]:
    """Name the outputs and trim them to their true sizes; BundleError if they are not what the
    manifest promises. `inputs` are those of the program."""
    found = [(array.dtype.name, array.shape) for array in arrays]
    promised = [(spec.dtype, spec.shape) for spec in program_outputs(bundle)]
    if found != promised:
        raise BundleError(
            f"the model returned {_described(found)} where its manifest promises "
            f"{_described(promised)}",
            hint="the library and the manifest do not match; build the bundle again",
        )
    own = [entry.spec for entry in bundle.manifest.inputs]
    lengths = with_lengths(own, ())[0][len(own) :]
    sizes = {spec.name: int(array) for spec, array in zip(lengths, inputs[len(own) :], strict=True)}
    return trimmed([entry.spec for entry in bundle.manifest.outputs], arrays, sizes)


def npy_bytes(array: Array) -> bytes:
    """Write an input as the agent reads it: .npy, in C order."""
    import numpy as np

    buffer = io.BytesIO()
    if array.dtype.name == "bfloat16":  # numpy writes it as "<V2", which has no byte order
        array = array.view("V2")
    # np.ascontiguousarray makes a vector of a scalar.
    np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def largest_npy(spec: TensorSpec) -> int:
    """Return the most bytes that an output of this kind takes."""
    from edgekit.base.arrays import numpy_dtype

    return spec.elements * numpy_dtype(spec.dtype).itemsize + _NPY_HEADER


def array_from_npy(data: bytes, spec: TensorSpec, device: str) -> Array:
    """Read an output that the agent wrote. The data is not trusted."""
    from edgekit.base.arrays import NPY_ERRORS, as_spec_dtype
    from edgekit.base.npy import read_npy

    try:
        array = read_npy(io.BytesIO(data))
    except NPY_ERRORS as error:
        raise DeviceError(
            f"{device} gave an output that is not in .npy form: {error}",
            hint="check the device's disk and memory",
        ) from error
    return as_spec_dtype(array, spec.dtype)


def _described(tensors: list[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in tensors) or "nothing"
