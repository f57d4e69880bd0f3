"""Reads the tables of NVIDIA's GPU in a board profile."""

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


def parse_gpu(reader: TableReader) -> Gpu:
    arch = reader.matching("arch", _ARCH, "an architecture of NVIDIA's such as sm_87")
    cuda = reader.integer("cuda", 10, 99)
    reader.finish()
    return Gpu(arch, cuda)


def parse_rest(target: TableReader, gpu: Gpu | None) -> str | None:
    """Parse `target.rest`. Return the GPU's architecture if it runs the rest of a model, None if
    the CPU does."""
    if not target.has("rest") or target.choice("rest", ("cpu", "cuda")) != "cuda":
        return None
    if gpu is None:
        target.complain("rest", '"cuda"', '"cpu": the profile has no table [gpu]')
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
