"""Published times of ncnn on GPUs through Vulkan: whether a board's is worth a try."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tomli

from edgekit.base.decode import decode
from edgekit.base.wording import number

_FILE = Path(__file__).with_suffix(".toml")
_OPTION = "[offload.ncnn] vulkan = true"


@dataclass(frozen=True)
class PublishedGpu:
    """Times of the same networks on a GPU and on the CPU beside it, in milliseconds."""

    boards: tuple[str, ...]
    name: str
    cores: int
    """The cores of the CPU that the times are of."""
    networks: tuple[str, ...]
    on_gpu: tuple[float, ...]
    on_cpu: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times as fast the GPU is, for each network."""
        return tuple(cpu / gpu for gpu, cpu in zip(self.on_gpu, self.on_cpu, strict=True))


@dataclass(frozen=True)
class Published:
    source: str
    gpu: tuple[PublishedGpu, ...]


@lru_cache(maxsize=1)
def published() -> Published:
    return decode(Published, tomli.loads(_FILE.read_text(encoding="utf-8")))


def vulkan_advice(board: str) -> str:
    """Return what is published about ncnn on the board's GPU; empty if nothing is."""
    known = [gpu for gpu in published().gpu if board in gpu.boards]
    if not known:
        return ""
    ratios = [ratio for gpu in known for ratio in gpu.ratios]
    least, most, first = min(ratios), max(ratios), known[0]
    beside = f"{first.cores} of its cores, by ncnn's published times: {published().source}"
    if most < 1:
        slower = f"{number(1 / most)} to {number(1 / least)} times as long as"
        return f"not on its GPU ({first.name}, {_OPTION}): networks take {slower} on {beside}"
    where = f"on its GPU ({first.name}, {_OPTION}) networks are"
    faster = f"{number(least)} to {number(most)} times as fast as on {beside}"
    return f"{where} {faster}" + ("; measure both" if least < 1 else "; worth a try")
