"""Fills the templates of an exported application. Gaps look like {{program}}."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent / "template"
_GAP = re.compile(r"\{\{([a-z_]+)\}\}")
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 40


def filled(name: str, values: Mapping[str, str]) -> str:
    """Fill the gaps of a template. Values from a manifest must be checked before."""
    text = (TEMPLATE / name).read_text(encoding="utf-8")
    return _GAP.sub(lambda gap: values[gap[1]], text)


def program_name(model: str) -> str:
    """Name a model's program, unit and folders, never like the system's own or CMake's targets."""
    plain = _NOT_PLAIN.sub("-", model.lower())[:_LONGEST_NAME].strip("-")
    if not plain or plain[0].isdigit():
        plain = f"net-{plain}".strip("-")
    return plain if plain.endswith("model") else f"{plain}-model"
