"""Model files that can run code: TorchScript, Keras, SavedModel.

Their own library loads such a file, in a process of its own and after the user's consent, and
writes what an importer reads: a `.pt2` or a `.tflite`. The rest is that format's package.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

from edgekit.base.events import SILENT, Events
from edgekit.models.foreign.conversion import translation
from edgekit.models.model import Frontend, Model, ModelScan, ModelSource, Signature


def content_files(path: Path) -> tuple[Path, ...]:
    """Return the file, or every file of the folder."""
    if not path.is_dir():
        return (path,)
    return tuple(sorted(file for file in path.rglob("*") if file.is_file()))


def check_inputs(source: ModelSource) -> None:
    """Convert the file, which asks for the shapes that it lacks."""
    inner = translation(source)
    _frontend(inner).check_inputs(inner)


def scan(source: ModelSource) -> ModelScan:
    """List the content of the converted file."""
    inner = translation(source)
    return _frontend(inner).scan(inner)


def signature(source: ModelSource) -> Signature:
    """Return the inputs and outputs of the converted file."""
    inner = translation(source)
    return _frontend(inner).signature(inner)


def load(source: ModelSource, events: Events = SILENT) -> Model:
    """Import the converted file as a Relax module."""
    inner = translation(source, events)
    return replace(_frontend(inner).load(inner, events), source=source)


def _frontend(source: ModelSource) -> Frontend:
    return cast(Frontend, import_module(f"edgekit.models.{source.format}"))
