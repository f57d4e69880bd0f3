"""Reads the table of the GPU in a board profile: one of NVIDIA's, or one with OpenCL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgekit.base.own_backends import own_backends
from edgekit.profiles.reader import TableReader, show

NEEDED_CUDA = 13
"""TVM's runtime for CUDA needs libcudart.so.13, and its source is not published with it."""
_ARCH = re.compile(r"sm_[0-9]{2,3}[af]?")


@dataclass(frozen=True)
class Gpu:
    arch: str
    """The architecture as NVIDIA's compiler takes it: "sm_87"."""
    cuda: int
    """The major version of CUDA in the board's system: 12 in JetPack 6."""


@dataclass(frozen=True)
class OpenCl:
    """What kernels in OpenCL's C may count on, and their schedules go by."""

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


def parse_gpu(reader: TableReader) -> Gpu | OpenCl:
    if reader.has("threads") or reader.has("width"):
        return _parse_opencl(reader)
    arch = reader.matching("arch", _ARCH, "an architecture of NVIDIA's such as sm_87")
    cuda = reader.integer("cuda", 10, 99)
    reader.finish()
    return Gpu(arch, cuda)


def _parse_opencl(reader: TableReader) -> OpenCl:
    made = OpenCl(
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


def parse_rest(target: TableReader, gpu: Gpu | OpenCl | None) -> str | OpenCl | None:
    """Parse `target.rest`. Return what runs the rest of a model: the architecture of NVIDIA's GPU,
    the limits of one with OpenCL, None for the CPU."""
    rest = target.choice("rest", ("cpu", "cuda", "opencl")) if target.has("rest") else "cpu"
    if rest not in ("cuda", "opencl"):
        return None
    if gpu is None:
        target.complain("rest", show(rest), '"cpu": the profile has no table [gpu]')
        return None
    if isinstance(gpu, OpenCl):
        if rest == "cuda":
            target.complain("rest", '"cuda"', '"opencl": the table [gpu] is of a GPU with OpenCL')
        return gpu
    if rest == "opencl":
        target.complain("rest", '"opencl"', '"cuda": the table [gpu] is of a GPU of NVIDIA\'s')
        return None
    if 0 < gpu.cuda < NEEDED_CUDA:
        why = f"TVM's CUDA runtime needs libcudart.so.{NEEDED_CUDA}, and gpu.cuda is {gpu.cuda}"
        target.complain("rest", '"cuda"', f'"cpu": {why}')
        return None
    return gpu.arch


def complain_of_libraries(offload: TableReader, allowed: tuple[str, ...]) -> None:
    """Complain of backends that run on the CPU, if the GPU runs the rest of a model."""
    on_gpu = [name for name, facts in own_backends().items() if facts.tensors == "gpu"]
    for name in allowed:
        if name not in on_gpu:
            expected = f'{" or ".join(on_gpu)} where target.rest is "cuda"'
            offload.complain("allowed", show(name), expected)
