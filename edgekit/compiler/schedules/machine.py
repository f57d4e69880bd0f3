"""What a schedule has to know of a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgekit.base.errors import BuildError
from edgekit.compiler.schedules.dot_products import DotProduct, dot_product_of, matrix_product_of
from edgekit.profiles.cpu import architecture

# By the feature: the widest vectors of float32, and how many registers hold them. AVX-512
# doubled both.
_X86 = (("avx512f", 16, 32), ("avx", 8, 16))
_X86_LANES, _X86_REGISTERS = 4, 16
_ARM_LANES, _ARM_REGISTERS = 4, 32


@dataclass(frozen=True)
class Machine:
    lanes: int
    """float32 in a vector."""
    registers: int
    """Vectors that fit in registers."""
    cores: int
    near_bytes: int = 1 << 19
    """What is read again from the cache next to the core, rather than from one that is shared."""
    dot: DotProduct | None = None
    """How small integers are multiplied and added."""
    matrix: DotProduct | None = None
    """The same for two pixels at once, where there is such an instruction."""
    multiplies_by_lane: bool = False
    """A vector times one lane of another is one instruction: numbers that are to be in all lanes
    need no loads of their own."""
    parallel_work: int = 200_000
    """Elements touched, or multiplied and added: with less, waking the other cores takes longer
    than doing it."""


def machine_of(target: Any) -> Machine:
    """Of TVM's target: LLVM knows what each CPU has."""
    from tvm.target.codegen import llvm_get_targets, target_has_features

    if target.kind.name == "cuda":
        raise BuildError(
            "kernels for a GPU have TVM's own schedules: there is nothing to choose or to tune",
            hint="kernels for a CPU are what can be tuned",
        )
    cores = int(target.attrs.get("num-cores", 1))
    triple = str(target.attrs.get("mtriple", "x86_64"))
    if architecture(triple) not in llvm_get_targets():
        # Asked how wide its vectors are, TVM would crash.
        raise BuildError(
            f"LLVM makes no code for {triple}", hint="correct the triple in the board's profile"
        )
    dot = dot_product_of(target, architecture(triple))
    if architecture(triple) != "x86_64":
        matrix = matrix_product_of(target, architecture(triple))
        return Machine(
            *(_ARM_LANES, _ARM_REGISTERS, cores), dot=dot, matrix=matrix, multiplies_by_lane=True
        )
    for feature, lanes, registers in _X86:
        if target_has_features(feature, target):
            return Machine(lanes, registers, cores, dot=dot)
    return Machine(_X86_LANES, _X86_REGISTERS, cores, dot=dot)
