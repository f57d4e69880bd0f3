"""Instructions that multiply small integers in groups and add them up, exactly.

Each takes a group of neighbouring numbers of the image, repeats it for every lane, multiplies it
with that lane's own group of weights, and adds the products to the lane's int32. None of them
saturates in between, so that all give the same sums:

- `vnni` (AVX512-VNNI, AVX-VNNI): four at a time, unsigned by signed. The image is stored 128
  higher, and 128 times the sum of a lane's weights is subtracted at the end.
- `madd` (SSE2, AVX2, AVX-512): two at a time, of 16 bits. Weights are widened when they are loaded.
- `smmla` (ARM's i8mm): eight at a time, of two pixels by two lanes.
- `sdot` (ARM's dot products): four at a time.
- `smull` (any NEON): two at a time into 16 bits, and two such on top of each other, which fits
  since no weight is -128; then pairs into 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DotProduct:
    kind: str
    lanes: int
    """int32 sums in a vector."""
    group: int
    """Neighbours that are multiplied and added for each lane."""
    runs: int
    """The number of runs in a group: every lane's first run precedes any lane's second."""
    image: str
    """The type that the image is stored in."""
    raised: int = 0
    """The offset that is added to the stored image."""
    pixels: int = 1
    """Neighbours in a line that one instruction computes; their sums share a vector."""

    @property
    def run(self) -> int:
        return self.group // self.runs

    @property
    def places(self) -> tuple[int, ...]:
        """The extents of the loops over a group."""
        return (self.run,) if self.runs == 1 else (self.runs, self.run)

    @property
    def weights(self) -> tuple[int, ...]:
        """The shape of one vector of weights."""
        return (self.lanes, self.run) if self.runs == 1 else (self.runs, self.lanes, self.run)

    def place(self, *loops: Any) -> Any:
        """Return the place in a group, from the loops over it."""
        return loops[0] if self.runs == 1 else loops[0] * self.run + loops[1]

    def weight(self, lane: Any, *loops: Any) -> tuple[Any, ...]:
        """Return the indices into a vector of weights."""
        *before, last = loops
        return (*before, lane, last)


_X86 = (
    (("avx512vnni",), DotProduct("vnni", 16, 4, 1, "uint8", 128)),
    (("avxvnni",), DotProduct("vnni", 8, 4, 1, "uint8", 128)),
    (("avx512bw",), DotProduct("madd", 16, 2, 1, "int16")),
    (("avx2",), DotProduct("madd", 8, 2, 1, "int16")),
    (("sse2",), DotProduct("madd", 4, 2, 1, "int16")),
)
_ARM = (
    (("dotprod",), DotProduct("sdot", 4, 4, 1, "int8")),
    (("neon",), DotProduct("smull", 4, 4, 2, "int8")),
)
_I8MM = DotProduct("smmla", 2, 8, 1, "int8", pixels=2)


def matrix_product_of(target: Any, family: str) -> DotProduct | None:
    """Return the instruction that multiplies two pixels at once, where a CPU has one."""
    from tvm.target.codegen import target_has_features

    return _I8MM if family == "arm" and target_has_features("i8mm", target) else None


def dot_product_of(target: Any, family: str) -> DotProduct | None:
    """Return the best instruction of a CPU, by the family in its architecture's file; None where
    none is known."""
    from tvm.target.codegen import target_has_features

    instructions = {"x86": _X86, "arm": _ARM}.get(family, ())
    for features, found in instructions:
        if all(target_has_features(feature, target) for feature in features):
            return found
    return None
