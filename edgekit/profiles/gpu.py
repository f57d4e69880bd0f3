"""Reads the table of the GPU in a board profile: one of NVIDIA's, or one with OpenCL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from edgekit.profiles.reader import TableReader, show

NEEDED_CUDA = 13
"""Kernels are compiled by NVIDIA's compiler of CUDA 13, whose code older drivers refuse."""
_ARCH = re.compile(r"(sm|compute)_[0-9]{2,3}[af]?")


@dataclass(frozen=True)
class Gpu:
    arch: str
    """The architecture as NVIDIA's compiler takes it: "sm_87" is machine code for one GPU,
    "compute_75" code for it and all newer ones, which their driver compiles."""
    cuda: int
    """The major version of CUDA in the board's system: 12 in JetPack 6."""

    @property
    def limits(self) -> GpuLimits:
        """Return the limits of every GPU that CUDA 13 supports."""
        return GpuLimits("cuda", self.arch, 1024, 32, 48 << 10, True, True, arch=self.arch)


@dataclass(frozen=True)
class GpuLimits:
    """What kernels for a GPU may count on, and their schedules go by."""

    language: Literal["opencl", "cuda"]
    name: str
    threads: int
    """The most threads of a group."""
    width: int
    """Threads that run in step."""
    local_memory: int
    """Bytes of a group's memory on the chip; 0 where it is ordinary memory, as on Mali."""
    half: bool
    """Whether it computes in float16."""
    double: bool
    untested: bool = False
    """Whether no model has run on such a GPU."""
    arch: str = ""
    """The architecture as NVIDIA's compiler takes it."""


def parse_gpu(reader: TableReader) -> Gpu | GpuLimits:
    if reader.has("threads") or reader.has("width"):
        return _parse_opencl(reader)
    arch = reader.matching("arch", _ARCH, "an architecture of NVIDIA's such as sm_87")
    cuda = reader.integer("cuda", 10, 99)
    reader.finish()
    return Gpu(arch, cuda)


def _parse_opencl(reader: TableReader) -> GpuLimits:
    made = GpuLimits(
        language="opencl",
        name=reader.text("name", limit=60),
        threads=reader.integer("threads", 16, 4096),
        width=reader.integer("width", 1, 128),
        local_memory=reader.size("local_memory") if reader.has("local_memory") else 0,
        half=reader.value("half", bool, False),
        double=reader.value("double", bool, False),
        untested=reader.value("untested", bool, False) if reader.has("untested") else False,
    )
    reader.finish()
    return made


def parse_rest(target: TableReader, gpu: Gpu | GpuLimits | None) -> GpuLimits | None:
    """Parse `target.rest`. Return the limits of the GPU that runs the rest of a model; None is the
    CPU."""
    rest = target.choice("rest", ("cpu", "cuda", "opencl")) if target.has("rest") else "cpu"
    if rest not in ("cuda", "opencl"):
        return None
    if gpu is None:
        target.complain("rest", show(rest), '"cpu": the profile has no table [gpu]')
        return None
    if isinstance(gpu, GpuLimits):
        if rest == "cuda":
            target.complain("rest", '"cuda"', '"opencl": the table [gpu] is of a GPU with OpenCL')
        return gpu
    if rest == "opencl":
        target.complain("rest", '"opencl"', '"cuda": the table [gpu] is of a GPU of NVIDIA\'s')
        return None
    if 0 < gpu.cuda < NEEDED_CUDA:
        why = f"kernels need the driver of CUDA {NEEDED_CUDA}, and gpu.cuda is {gpu.cuda}"
        target.complain("rest", '"cuda"', f'"cpu": {why}')
        return None
    return gpu.limits
