"""Reads the tables [firmware] and [flash] of a microcontroller's profile (docs/boards.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

from edgekit.base.paths import PACKAGE
from edgekit.profiles.reader import TableReader

FlashDriver = Literal["qemu", "openocd", "pyocd", "stm32loader", "uf2"]

_FAMILIES = PACKAGE / "aot" / "firmware" / "source" / "families"
_MACRO = re.compile(r"\bEK_(\w+)")
_DEFAULT = re.compile(r"^#ifndef EK_(\w+)$", re.MULTILINE)
"""A macro that a family's file defines itself where the profile does not."""
_OF_EVERY_FAMILY = ("uart", "uart_irq")
_GIVEN = ("clock", "baud", "register")
"""Macros of every firmware, which are no registers."""


@cache
def families() -> Mapping[str, Mapping[str, bool]]:
    """Return the families of microcontrollers, one for each C file, the numbers that each file
    takes as macros, and whether it needs them."""
    return {file.stem: _registers_in(file) for file in sorted(_FAMILIES.glob("*.c"))}


def _registers_in(file: Path) -> Mapping[str, bool]:
    text = file.read_text(encoding="utf-8")
    used = (name.lower() for name in _MACRO.findall(text))
    defined = {name.lower() for name in _DEFAULT.findall(text)}
    names = (*_OF_EVERY_FAMILY, *(name for name in used if name not in _GIVEN))
    return {name: name not in defined for name in names}


FLASH_DRIVERS: tuple[FlashDriver, ...] = ("qemu", "openocd", "pyocd", "stm32loader", "uf2")
_DEFAULT_STACK = 8 << 10
_LARGEST_STACK = 1 << 20
# Neither an option nor a path out of the tool's own folder of scripts.
_SCRIPT = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/-]*\.cfg")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}")


@dataclass(frozen=True)
class Firmware:
    """A board's settings for edgekit's firmware."""

    family: str
    clock: int
    """The core's clock in Hz."""
    stack: int
    caches: bool
    registers: Mapping[str, int]
    """Addresses by the names that `families` lists."""
    untested: bool = False
    """Whether it has never run on such a board."""


@dataclass(frozen=True)
class Flash:
    """The tool that writes the firmware, and its settings."""

    driver: FlashDriver
    scripts: tuple[str, ...] = ()
    """Scripts of OpenOCD."""
    target: str = ""
    """pyOCD's name for the chip, stm32loader's for the family, or the volume's label for UF2."""
    family_id: int = 0
    """The chip's number in UF2."""


def parse_firmware(reader: TableReader) -> Firmware:
    family = reader.choice("family", tuple(families()))
    clock = reader.integer("clock", 1_000_000, 2_000_000_000)
    stack = reader.size("stack") if reader.has("stack") else _DEFAULT_STACK
    if stack > _LARGEST_STACK or stack % 8:
        reader.complain("stack", str(stack), "at most 1 MiB, a multiple of 8 bytes")
    caches, untested = _flag(reader, "caches"), _flag(reader, "untested")
    registers = {
        key: reader.integer(key, 0, 0xFFFF_FFFF)
        for key, is_needed in families().get(family, {}).items()
        if is_needed or reader.has(key)
    }
    reader.finish()
    return Firmware(family, clock, stack, caches, registers, untested)


def _flag(reader: TableReader, key: str) -> bool:
    if not reader.has(key):
        return False
    value = reader.raw(key)
    if not isinstance(value, bool):
        reader.complain(key, str(value)[:80], "true or false")
    return value is True


def parse_flash(reader: TableReader) -> Flash:
    driver = reader.choice("driver", FLASH_DRIVERS)
    scripts: tuple[str, ...] = ()
    target, family_id = "", 0
    if driver == "openocd":
        scripts = reader.texts("scripts", _SCRIPT, "a script of OpenOCD's such as target/nrf52.cfg")
    if driver in ("pyocd", "stm32loader", "uf2"):
        target = reader.matching("target", _WORD, "a word")
    if driver == "uf2":
        family_id = reader.integer("family_id", 1, 0xFFFF_FFFF)
    reader.finish()
    return Flash(cast(FlashDriver, driver), scripts, target, family_id)
