"""Reads the tables of `[offload]` in board profiles and project files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, TableReader, show

Scalar = bool | int | float | str

_SELECTOR = re.compile(r"[^\x00-\x1f\x7f]+")
_SELECTOR_EXPECTED = "an operator or a node of the model, * for any text"
_COST = "cost"
_MOST_OPTIONS = 64
_LONGEST_TEXT = 200
_RATE_EXPECTED = "a number above 0 (call_us: from 0), below 1e12"


AUTO = ("auto",)
"""The value for the backends of the project or the board's profile, else for those measured to be
faster."""


@dataclass(frozen=True)
class Rates:
    """The rates in the rule of backends/cost.py. The two rates of arithmetic are not measured: they
    favour the requested library."""

    call_us: float = 5.0
    """Microseconds to enter a region of any size."""
    copy_gb_s: float = 4.0
    """The rate of copying a region's inputs and outputs."""
    tvm_gmac_s: float = 2.0
    """The rate of multiply-accumulates of TVM's code."""
    library_gmac_s: float = 10.0
    """The rate of the library's layers."""


ONLY_MEASURED = Rates(tvm_gmac_s=1e12, library_gmac_s=1e12)
"""Rates by which no region saves time unless it was measured: TVM takes none."""

_RATES = tuple(rate.name for rate in fields(Rates))


@dataclass(frozen=True)
class OffloadSettings:
    """The settings of one file. Other files may set what it leaves out."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Rates by the names in `Rates`."""
    options: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """Options by backend. They are checked when the backend is used, because the installed packages
    decide which backends exist."""


@dataclass(frozen=True)
class ProjectOffload:
    """The offloading of a project."""

    backends: tuple[str, ...] | None = None
    """Backends in the order of preference; None leaves it to the board."""
    force: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    settings: OffloadSettings = field(default_factory=OffloadSettings)


def parse_settings(reader: TableReader) -> OffloadSettings:
    """Parse `[offload.cost]` and the backends' tables in the table `[offload]`.

    Call it after its other keys were read: a table of any other name is a backend's.
    """
    rates = _parse_rates(reader.table(_COST)) if reader.has(_COST) else {}
    options = {
        name: _parse_options(reader.table(name))
        for name in reader.unread_tables()
        if NAME_PATTERN.fullmatch(name)
    }
    return OffloadSettings(rates, options)


def parse_project_offload(reader: TableReader) -> ProjectOffload:
    """Parse the table `[offload]` of a project file."""
    offload = ProjectOffload(
        backends=reader.texts("backends", NAME_PATTERN, NAME_EXPECTED)
        if reader.has("backends")
        else None,
        force=_parse_selectors(reader, "force"),
        never=_parse_selectors(reader, "never"),
        settings=parse_settings(reader),
    )
    reader.finish()
    return offload


def _parse_selectors(reader: TableReader, key: str) -> tuple[str, ...]:
    return reader.texts(key, _SELECTOR, _SELECTOR_EXPECTED) if reader.has(key) else ()


def _parse_rates(reader: TableReader) -> dict[str, float]:
    rates: dict[str, float] = {}
    for name in filter(reader.has, _RATES):
        value = reader.raw(name)
        least = 0.0 if name == "call_us" else 1e-9
        if type(value) in (int, float) and least <= cast(float, value) < 1e12:
            rates[name] = float(cast(float, value))
        else:
            reader.complain(name, show(value), _RATE_EXPECTED)
    reader.finish()
    return rates


def _parse_options(reader: TableReader) -> dict[str, Scalar]:
    options: dict[str, Scalar] = {}
    expected = f"a number, true or false, or text of up to {_LONGEST_TEXT} characters on one line"
    for name in reader.names():
        value = reader.raw(name)
        if len(options) >= _MOST_OPTIONS:
            reader.complain(name, "one option more", f"at most {_MOST_OPTIONS}")
            break
        if _is_option(value):
            options[name] = cast(Scalar, value)
        else:
            reader.complain(name, show(value), expected)
    return options


def _is_option(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT and value.isprintable()
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
