"""What is sent to a device's agent is the tensor, with its shape."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgekit.base.arrays import as_spec_dtype, numpy_dtype
from edgekit.base.npy import read_npy
from edgekit.devices.tensors import npy_bytes

DTYPES = st.sampled_from(["float32", "float16", "int64", "uint8", "bool"])


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0)), st.booleans())
def test_an_input_arrives_with_its_shape_and_in_c_order(
    array: np.ndarray[Any, Any], fortran: bool
) -> None:
    sent = npy_bytes(np.asfortranarray(array).reshape(array.shape) if fortran else array)

    found = np.load(io.BytesIO(sent))

    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.flags.c_contiguous
    assert found.tobytes() == array.tobytes()


def test_bfloat16_is_sent_as_the_agent_reads_it() -> None:
    array = np.array([[1.5], [-2]], numpy_dtype("bfloat16"))

    sent = npy_bytes(array)

    assert b"'descr': '|V2'" in sent  # a row of the agent's table of types
    assert as_spec_dtype(read_npy(io.BytesIO(sent)), "bfloat16").tolist() == [[1.5], [-2.0]]
