"""A check of versions before the first call: TVM's RPC makes none."""

from __future__ import annotations

from edgekit.base.errors import DeviceError
from edgekit.base.tvm_compat import TVM_FFI_VERSION, TVM_VERSION

REMOTE_TVM_VERSION = "edgekit.tvm_version"
REMOTE_FFI_VERSION = "edgekit.tvm_ffi_version"
"""The functions of an agent's session that return its versions."""


class TvmMismatchError(DeviceError):
    """The device runs another TVM than this host."""


def check_versions(tvm: str, ffi: str, name: str) -> None:
    """Compare the versions on a device with those of this host; TvmMismatchError if they differ."""
    for what, found, ours in (("TVM", tvm, TVM_VERSION), ("tvm-ffi", ffi, TVM_FFI_VERSION)):
        if found != ours:
            raise TvmMismatchError(
                f"{name} runs {what} {found[:40]}, and this edgekit uses {ours}",
                hint="serve the device with this version of edgekit: edgekit rpc serve",
            )
