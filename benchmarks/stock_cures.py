"""What TVM's own MetaSchedule needs to measure anything at all with the pinned TVM.

A module of its own: its workers are handed the function by name, and import it.
"""

from __future__ import annotations

from edgekit.base.tvm_compat import load_tensor_intrinsics


def import_intrinsics_quickly() -> None:
    """Every builder imports them, and builders are started anew for every batch: as shipped this
    takes 68 s, and a build is given 30."""
    load_tensor_intrinsics()
