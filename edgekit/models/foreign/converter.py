"""Loads one file that can run code, and writes it in a form that an importer reads.

A process of its own, which conversion.py starts after the user agreed. What it wrote is run on
seeded inputs beside the original: a conversion that changes the numbers is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from edgekit.base.child import Channel
from edgekit.base.failure import failure_of
from edgekit.models.foreign_formats import ForeignFormat

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Convert: TypeAlias = Callable[[Path, Shapes, Path], None]


def main() -> None:
    channel = Channel()
    kind: ForeignFormat
    kind, path, shapes, target = channel.next()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            convert: Convert = import_module(f"edgekit.models.foreign.{kind}").convert
            convert(path, shapes, target)
        channel.send(None)
    except Exception as error:  # noqa: BLE001 - the caller raises it
        channel.send(failure_of(error))
    channel.end()


if __name__ == "__main__":
    main()
