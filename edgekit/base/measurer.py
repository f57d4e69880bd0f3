"""What measured a number, and how that is said beside it.

Numbers of two measurers, or in two units, are never compared: an emulator's seconds say nothing
about a board's, and instructions nothing about time.
"""

from __future__ import annotations

from typing import Literal

from edgekit.base.wording import measured

Measurer = Literal["hardware", "emulator", "simulator"]
"""Hardware is the board itself, an emulator QEMU, a simulator a device that only pretends. Where a
field may be None, nothing recorded it: the number is older than the field."""

Unit = Literal["seconds", "instructions"]
"""The unit of a search's numbers. `microseconds` of instructions are thousands of them."""

_BESIDE = {"emulator": "emulated", "simulator": "simulated", None: "of unknown origin"}


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
