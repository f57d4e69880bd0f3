"""The properties of a CPU that schedules depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgekit.base.errors import BuildError
from edgekit.compiler.schedules.dot_products import DotProduct, dot_product_of, matrix_product_of
from edgekit.profiles.cpu import architecture

# By feature: the widest vectors of float32, and how many registers hold them. AVX-512 doubled both.
_X86 = (("avx512f", 16, 32), ("avx", 8, 16))
_X86_LANES, _X86_REGISTERS = 4, 16
_ARM_LANES, _ARM_REGISTERS = 4, 32


@dataclass(frozen=True)
class Machine:
    lanes: int
    """float32 lanes of a vector."""
    registers: int
    """The number of vector registers."""
    cores: int
    near_bytes: int = 1 << 19
    """Bytes of the core's own cache for repeated reads, as opposed to the shared cache."""
    dot: DotProduct | None = None
    """The instruction that multiplies small integers and adds them."""
    matrix: DotProduct | None = None
    """The same for two pixels at once, where there is such an instruction."""
    multiplies_by_lane: bool = False
    """Whether a vector times one lane of another is one instruction: broadcast numbers then need no
    loads of their own."""
    parallel_work: int = 200_000
    """The least number of elements touched, or multiplied and added, for which waking the other
    cores pays."""


def machine_of(target: Any) -> Machine:
    """Return the machine of a TVM target: LLVM knows the features of each CPU."""
    from tvm.target.codegen import llvm_get_targets, target_has_features

    if target.kind.name == "cuda":
        raise BuildError(
            "kernels for a GPU have TVM's own schedules: there is nothing to choose or to tune",
            hint="only kernels for a CPU can be tuned",
        )
    cores = int(target.attrs.get("num-cores", 1))
    triple = str(target.attrs.get("mtriple", "x86_64"))
    if architecture(triple) not in llvm_get_targets():
        # Asked for its vector width, TVM would crash.
        raise BuildError(
            f"LLVM does not support {triple}", hint="correct the triple in the board's profile"
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
