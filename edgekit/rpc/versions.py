"""TVM's RPC says no version: the two ends are compared here, before the first call."""

from __future__ import annotations

from edgekit.base.errors import DeviceError
from edgekit.base.tvm_compat import TVM_FFI_VERSION, TVM_VERSION

REMOTE_TVM_VERSION = "edgekit.tvm_version"
REMOTE_FFI_VERSION = "edgekit.tvm_ffi_version"
"""The functions by which an agent's session says what it runs."""


class TvmMismatchError(DeviceError):
    """The device runs another TVM than this machine."""


def check_versions(tvm: str, ffi: str, name: str) -> None:
    """What a device says that it runs, against what we run."""
    for what, found, ours in (("TVM", tvm, TVM_VERSION), ("tvm-ffi", ffi, TVM_FFI_VERSION)):
        if found != ours:
            raise TvmMismatchError(
                f"{name} runs {what} {found[:40]}, and this edgekit uses {ours}",
                hint="serve the device with this version of edgekit: edgekit rpc serve",
            )
