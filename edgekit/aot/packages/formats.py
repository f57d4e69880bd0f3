"""The forms in which a bundle can hold a model in C, besides the C itself."""

from __future__ import annotations

from typing import Literal

CodeFormat = Literal["c", "static-lib", "cmsis-pack", "arduino"]
CODE_FORMATS: tuple[CodeFormat, ...] = ("c", "static-lib", "cmsis-pack", "arduino")
PACKAGE_VERSION = "1.0.0"
"""The version of packs and Arduino libraries; the SHA-256 inside tells which model they hold."""
