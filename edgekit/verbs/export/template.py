"""The files of an exported application that are text with gaps: {{program}}."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent / "template"
_GAP = re.compile(r"\{\{([a-z_]+)\}\}")
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 40


def filled(name: str, values: Mapping[str, str]) -> str:
    """A template with its gaps filled. What comes from a manifest must not get here unchecked."""
    text = (TEMPLATE / name).read_text(encoding="utf-8")
    return _GAP.sub(lambda gap: values[gap[1]], text)


def program_name(model: str) -> str:
    """What a model's program, unit and folders are called: never like one of the system's own, or
    of CMake's targets."""
    plain = _NOT_PLAIN.sub("-", model.lower())[:_LONGEST_NAME].strip("-")
    if not plain or plain[0].isdigit():
        plain = f"net-{plain}".strip("-")
    return plain if plain.endswith("model") else f"{plain}-model"
