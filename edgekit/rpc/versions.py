"""TVM's RPC says no version: the two ends are compared here, before the first call."""

from __future__ import annotations

from edgekit.errors import DeviceError
from edgekit.tvm_compat import TVM_VERSION

REMOTE_VERSION = "edgekit.tvm_version"
"""The function by which an agent's session says what TVM it runs."""


class TvmMismatchError(DeviceError):
    """The device runs another TVM than this machine."""


def check_tvm_version(found: str, name: str) -> None:
    if found != TVM_VERSION:
        raise TvmMismatchError(
            f"{name} runs TVM {found[:40]}, and this edgekit uses {TVM_VERSION}",
            hint="serve the device with this version of edgekit: edgekit rpc serve",
        )
