"""An array that is lent lives as long as what was made of it, and no longer."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import tvm_ffi

from edgekit.devices.local.dlpack import DlpackArray


def test_a_tensor_keeps_what_it_was_made_of() -> None:
    """TVM's virtual machine holds on to the inputs of a call until the next one."""
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    alive = weakref.ref(array)
    tensor = tvm_ffi.from_dlpack(DlpackArray(array))

    del array
    gc.collect()

    assert alive() is not None
    del tensor
    gc.collect()
    assert alive() is None
