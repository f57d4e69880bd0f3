"""What measured a number, and how that is said beside it.

Numbers of two measurers, or in two units, are never compared: an emulator's seconds say nothing
about a board's, and instructions nothing about time.
"""

from __future__ import annotations

import re
from typing import Literal

from edgekit.base.wording import measured

Measurer = Literal["hardware", "emulator", "simulator", "engine"]
"""Hardware is the board itself, an emulator QEMU, a simulator a device that only pretends, an
engine a program on this machine that runs WebAssembly. Where a field may be None, nothing recorded
it: the number is older than the field."""

Unit = Literal["seconds", "instructions"]
"""The unit of a search's numbers. `microseconds` of instructions are thousands of them."""

_BESIDE = {
    "emulator": "emulated",
    "simulator": "simulated",
    "engine": "in an engine",
    None: "of unknown origin",
}


_QEMU_MACHINES = ("linux,dummy-virt", "riscv-virtio", "qemu,")
"""Machines of QEMU in a device tree, which no board is."""
_KVM = ("kvm-clock", "KVM Virtual Machine")
_QEMU_CPU = re.compile(r"QEMU|^CPU implementer\s*: 0x00$", re.MULTILINE)
_QEMU_TIMER = re.compile(r"^BogoMIPS\s*: 125\.00$", re.MULTILINE)
"""Twice the 62.5 MHz of the timer that QEMU gives to Arm cores; a Raspberry Pi's has 19.2 or 54."""
_COUNTS_CYCLES = re.compile(r"\bevent=0x0*11\b")
_COUNTS_REFILLS = re.compile(r"\bevent=0x0*3\b")
"""A counter that the architecture demands of each Arm core that counts cycles. QEMU has none."""
_QEMU_CORTEX_M = (0x410FC231, 0x410FC240)
"""The CPUID of QEMU's Cortex-M3 (r0p1) and Cortex-M4 (r0p0): first revisions, which boards do not
have. Its Cortex-M7, M33 and M55 name revisions that chips have too."""


def measurer_by(platform: str, cpuinfo: str) -> Measurer:
    """Return what measures on a machine, by what its firmware and its kernel say of it.

    `platform` has the device tree's machine, the DMI's vendor and product, the clock sources, and
    the counters of an Arm core. A virtual machine that QEMU runs on the CPU itself (KVM) is not
    emulated. QEMU's models of real boards name nothing of QEMU: their cores and timers tell.
    """
    if any(machine in platform for machine in _QEMU_MACHINES):
        return "emulator"
    if _COUNTS_CYCLES.search(platform) and not _COUNTS_REFILLS.search(platform):
        return "emulator"
    if _QEMU_TIMER.search(cpuinfo) and not _COUNTS_REFILLS.search(platform):
        return "emulator"
    is_of_qemu = "QEMU" in platform or _QEMU_CPU.search(cpuinfo) is not None
    is_emulated = is_of_qemu and not any(sign in platform for sign in _KVM)
    return "emulator" if is_emulated else "hardware"


_RV32 = 0x40
_SUPERVISOR = 1 << 18


def core_measurer(cpuid: int) -> Measurer:
    """Return what measures on a microcontroller, by the CPUID register of an Arm core or the misa
    register of a RISC-V core: QEMU's has the supervisor mode of a core for Linux."""
    is_rv32_of_qemu = cpuid >> 24 == _RV32 and cpuid & _SUPERVISOR
    return "emulator" if cpuid in _QEMU_CORTEX_M or is_rv32_of_qemu else "hardware"


def figure(value: float, unit: str, measured_by: Measurer | None) -> str:
    """Format a number with the word for its measurer, unless that is hardware: 14 ms emulated."""
    return beside(measured(value, unit), measured_by)


def beside(text: str, measured_by: Measurer | None) -> str:
    """Add the word for the measurer to a number, unless that is hardware."""
    word = _BESIDE.get(measured_by)
    return text if word is None else f"{text} {word}"


def measurer_in_words(measured_by: Measurer | None) -> str:
    """Name the measurer in a row of its own."""
    return {
        "hardware": "hardware",
        "emulator": "an emulator: its times are not the board's",
        "simulator": "a simulator: its times are not the board's",
        "engine": "an engine on this machine: its times are no other machine's",
    }.get(measured_by or "", "unknown: its record does not say")


def search_figure(microseconds: float, unit: str) -> str:
    """Format a number of a search, which holds thousands of instructions as microseconds."""
    value = microseconds / 1e6 if unit == "seconds" else microseconds * 1e3
    return measured(value, unit)
