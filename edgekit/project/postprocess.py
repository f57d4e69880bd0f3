"""Reads the section [postprocess] of edgekit.toml with its labels, and proposes one for a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.paths import beside
from edgekit.models.ends.postprocess import MOST_LABELS, Postprocess
from edgekit.models.ends.proposal import labels_for_file, proposed_text
from edgekit.models.model import open_model
from edgekit.profiles.reader import TableReader, show

_LARGEST_FILE = 16 << 20


def read_postprocess(reader: TableReader, file: Path) -> Postprocess | None:
    """Read the section, with the lines of the file in place of its name."""
    if not reader.has("postprocess"):
        return None
    found = reader.raw("postprocess")
    if not isinstance(found, dict):
        reader.complain("postprocess", show(found), "a table [postprocess]")
        return None
    table: Mapping[str, object] = found
    if isinstance(found.get("labels"), str):
        labels = _lines(beside(file, found["labels"]))
        if isinstance(labels, str):
            reader.table("postprocess").complain("labels", labels, "a text file, a label a line")
            return None
        table = {**found, "labels": labels}
    return reader.decoded("postprocess", Postprocess, table, None)


def proposed_sections(model: Path, project: Path) -> str:
    """Return the sections for a model of a known family, and write its labels if they are many.

    A file with labels that is there already stays.
    """
    suffix = model.suffix.lower()
    if suffix == ".onnx":
        from edgekit.models.onnx.families import image_input, propose
    elif suffix == ".tflite":
        from edgekit.models.tflite.families import image_input, propose
    else:
        return ""
    source = open_model(model)
    proposal = propose(source)
    if proposal is None:
        return ""
    file = project.parent / f"{source.name}.labels.txt"
    labels = labels_for_file(proposal)
    if labels is not None and not file.exists():
        with storage_errors("write the labels", file):
            write_atomically(file, labels)
    return proposed_text(image_input(source), proposal, file.name)


def _lines(path: Path) -> list[str] | str:
    """Return the lines of a file with labels, or what is wrong with it."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            return f"the large file {path}"
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return f"{path}, which is no text in UTF-8"
    except OSError as error:
        return f"{path}, which can't be read: {error.strerror}"
    lines = text.removesuffix("\n").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    return lines if len(lines) <= MOST_LABELS else f"{path} with {len(lines)} lines"
