"""The forms in which a bundle can hold a model in C, beside the C itself."""

from __future__ import annotations

from typing import Literal

CodeFormat = Literal["c", "static-lib", "cmsis-pack", "arduino"]
CODE_FORMATS: tuple[CodeFormat, ...] = ("c", "static-lib", "cmsis-pack", "arduino")
PACKAGE_VERSION = "1.0.0"
"""Of packs and Arduino libraries: which model is in one, its SHA-256 says."""
