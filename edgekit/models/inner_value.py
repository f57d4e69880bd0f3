"""A value between the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InnerValue:
    name: str
    layer: str
    operator: str
    handle: Any
    """What the format's own code knows the value by."""
