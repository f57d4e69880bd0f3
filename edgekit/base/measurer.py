"""What measured a number, and how that is said beside it.

Numbers of two measurers, or in two units, are never compared: an emulator's seconds say nothing
about a board's, and instructions nothing about time.
"""

from __future__ import annotations

import re
from typing import Literal

from edgekit.base.wording import measured

Measurer = Literal["hardware", "emulator", "simulator"]
"""Hardware is the board itself, an emulator QEMU, a simulator a device that only pretends. Where a
field may be None, nothing recorded it: the number is older than the field."""

Unit = Literal["seconds", "instructions"]
"""The unit of a search's numbers. `microseconds` of instructions are thousands of them."""

_BESIDE = {"emulator": "emulated", "simulator": "simulated", None: "of unknown origin"}


_QEMU_MACHINES = ("linux,dummy-virt", "riscv-virtio", "qemu,")
"""Machines of QEMU in a device tree, which no board is."""
_KVM = ("kvm-clock", "KVM Virtual Machine")
_QEMU_CPU = re.compile(r"QEMU|^CPU implementer\s*: 0x00$", re.MULTILINE)


def measurer_by(platform: str, cpuinfo: str) -> Measurer:
    """Return what measures on a machine, by what its firmware and its kernel say of it.

    `platform` has the device tree's machine, the DMI's vendor and product, and the clock sources. A
    virtual machine that QEMU runs on the CPU itself (KVM) is not emulated.
    """
    if any(machine in platform for machine in _QEMU_MACHINES):
        return "emulator"
    is_of_qemu = "QEMU" in platform or _QEMU_CPU.search(cpuinfo) is not None
    is_emulated = is_of_qemu and not any(sign in platform for sign in _KVM)
    return "emulator" if is_emulated else "hardware"


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
    }.get(measured_by or "", "unknown: its record does not say")


def search_figure(microseconds: float, unit: str) -> str:
    """Format a number of a search, which holds thousands of instructions as microseconds."""
    value = microseconds / 1e6 if unit == "seconds" else microseconds * 1e3
    return measured(value, unit)
