"""What a schedule has to know of a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.cpu import Cpu

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


def machine_of(cpu: Cpu) -> Machine:
    if cpu.arch != "x86_64":
        return Machine(_ARM_LANES, _ARM_REGISTERS, cpu.cores)
    for feature, lanes, registers in _X86:
        if feature in cpu.features:
            return Machine(lanes, registers, cpu.cores)
    return Machine(_X86_LANES, _X86_REGISTERS, cpu.cores)
