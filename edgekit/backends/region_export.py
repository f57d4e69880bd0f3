"""Export regions for other tools; docs/region-export.md describes the schema."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.backends.base import Region, Step, Tensor
from edgekit.base.arrays import Array
from edgekit.base.errors import UsageError
from edgekit.base.files import replace_directory, replace_file, storage_errors, write_atomically

FORMAT = 1
_ALIGNMENT = 64
_DESCRIPTION = "regions.json"
_WEIGHT = re.compile(r"[0-9]{4,}-[A-Za-z0-9_-]{0,60}\.npy")


@dataclass
class _Folder:
    """Weights as .npy files in the folder of the description."""

    folder: Path
    count: int = 0

    def add(self, name: str, array: Array) -> dict[str, Any]:
        from numpy import save

        self.count += 1
        file = f"{self.count:04}-{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:60]}.npy"
        save(self.folder / file, array, allow_pickle=False)
        return {"file": file}


@dataclass
class _Binary:
    """Weights in one file, each at a multiple of 64 bytes."""

    name: str
    stream: Any
    offset: int = field(default=0)

    def add(self, name: str, array: Array) -> dict[str, Any]:
        padding = -self.offset % _ALIGNMENT
        content = array.tobytes()
        self.stream.write(bytes(padding) + content)
        start = self.offset + padding
        self.offset = start + len(content)
        return {"file": self.name, "offset": start, "bytes": len(content)}


def export_regions(regions: Sequence[Region], target: Path) -> tuple[Path, ...]:
    """Export to a folder with regions.json and an .npy for each weight; or, if `target` ends in
    .json, to that file with all weights in one file next to it. Return the files written."""
    with storage_errors("write the regions", target):
        if target.suffix != ".json":
            _check_folder(target)
            with replace_directory(target) as folder:
                document = _document(regions, _Folder(folder))
                write_atomically(folder / _DESCRIPTION, _text(document))
            return (target / _DESCRIPTION,)
        target.parent.mkdir(parents=True, exist_ok=True)
        weights = target.with_suffix(".weights")
        with replace_file(weights) as stream:
            document = _document(regions, _Binary(weights.name, stream))
        write_atomically(target, _text(document))
        return (target, weights)


def _check_folder(folder: Path) -> None:
    """Refuse to replace a folder that no export has made."""
    for item in folder.iterdir() if folder.is_dir() else ():
        if item.name != _DESCRIPTION and not _WEIGHT.fullmatch(item.name):
            raise UsageError(
                f"{folder} holds {item.name!r}, which is no part of an export and would be lost",
                hint="choose a folder that is new or empty, or a file that ends in .json",
            )


def _text(document: object) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _document(regions: Sequence[Region], weights: _Folder | _Binary) -> dict[str, Any]:
    return {
        "format": "edgekit-regions",
        "version": FORMAT,
        "regions": [_region(region, weights) for region in regions],
    }


def _region(region: Region, weights: _Folder | _Binary) -> dict[str, Any]:
    tensors = {t.name: t for t in _tensors(region)}
    return {
        "name": region.symbol,
        "backend": region.backend,
        "inputs": [tensor.name for tensor in region.inputs],
        "outputs": [tensor.name for tensor in region.outputs],
        "tensors": [
            {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in tensors.values()
        ],
        "layers": [_layer(step, weights) for step in region.steps],
    }


def _tensors(region: Region) -> Iterator[Tensor]:
    yield from region.inputs
    for step in region.steps:
        yield from step.outputs


def _layer(step: Step, weights: _Folder | _Binary) -> dict[str, Any]:
    return {
        "kind": step.layer.kind,
        "operators": list(step.operators),
        "nodes": list(step.nodes),
        "inputs": [tensor.name for tensor in step.inputs],
        "outputs": [tensor.name for tensor in step.outputs],
        "macs": step.macs,
        "settings": {name: _setting(value) for name, value in sorted(step.layer.settings.items())},
        "weights": {
            name: _weight(name, array, weights)
            for name, array in sorted(step.layer.weights.items())
        },
    }


def _setting(value: Any) -> Any:
    """Return a setting for JSON, which has neither infinities nor NaN: those become text."""
    if isinstance(value, tuple):
        return [_setting(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _weight(name: str, array: Array, weights: _Folder | _Binary) -> dict[str, Any]:
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        **weights.add(name, array),
    }
