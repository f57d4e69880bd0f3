"""What the kernels of a GPU are to the program that starts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ALIGNMENT = 512
"""The alignment of every tensor: no device is known that wants more."""


@dataclass(frozen=True)
class Launch:
    """One function of the source at work."""

    function: str
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    """The threads of a group."""
    arguments: tuple[int, ...]
    """The kernel's operands that it gets: inputs, results, then scratch buffers."""


@dataclass(frozen=True)
class GpuKernel:
    launches: tuple[Launch, ...]
    scratch: tuple[int, ...] = ()
    """Bytes of each buffer that passes from launch to launch."""


@dataclass(frozen=True)
class GpuCode:
    source: str = ""
    kernels: Mapping[str, GpuKernel] = field(default_factory=dict)
    language: Literal["opencl", "cuda"] = "opencl"
    image: bytes = b""
    """The kernels compiled on the host; empty if the driver compiles their source."""
    regions: frozenset[str] = frozenset()
    """The regions of libraries that take tensors where they lie on the GPU."""

    @property
    def content(self) -> bytes:
        """The bytes that the driver gets."""
        return self.image or self.source.encode("ascii")
