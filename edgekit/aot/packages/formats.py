"""The forms in which a bundle can hold a model in C, besides the C itself."""

from __future__ import annotations

from typing import Literal, get_args

CodeFormat = Literal[
    "c",
    "static-lib",
    "cmsis-pack",
    "arduino",
    "platformio",
    "esp-idf",
    "zephyr",
    "rust",
    "energyrunner",
]
CODE_FORMATS: tuple[CodeFormat, ...] = get_args(CodeFormat)
PACKAGE_VERSION = "1.0.0"
"""The version of packs and Arduino libraries; the SHA-256 inside tells which model they hold."""
