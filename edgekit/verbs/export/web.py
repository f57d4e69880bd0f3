"""Writes a bundle for WebAssembly as a folder for a browser: module, loader, page, samples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.bundle.folder import Bundle
from edgekit.bundle.manifest import Manifest
from edgekit.devices.engine import LOADER
from edgekit.verbs.export.template import TEMPLATE, filled
from edgekit.version import __version__

_FOLDER = TEMPLATE / "web"
_ARRAYS = {
    **{f"float{bits}": f"Float{bits}Array" for bits in (32, 64)},
    **{f"int{bits}": f"Int{bits}Array" for bits in (8, 16, 32)},
    **{f"uint{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)},
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "float16": "Uint16Array",
    "bfloat16": "Uint16Array",
}


def write_page(folder: Path, bundle: Bundle, program: str) -> int:
    """Write the loader and the page; return the bytes of the loader."""
    manifest = bundle.manifest
    samples = {
        vector.name: f"sample/{vector.name}" if place else "sample"
        for place, vector in enumerate(manifest.vectors)
    }
    values = {
        "program": program,
        "version": __version__,
        "samples": json.dumps(samples),
        "call": _call(manifest),
    }
    for path in sorted(_FOLDER.iterdir()):
        text = filled(path.relative_to(TEMPLATE).as_posix(), values)
        (folder / path.name).write_text(text, encoding="utf-8")
    shutil.copyfile(LOADER, folder / LOADER.name)
    return LOADER.stat().st_size


def check_sizes(bundle: Bundle) -> None:
    """Refuse a model whose sizes vary: the loader takes tensors of fixed sizes."""
    manifest = bundle.manifest
    given = [entry.spec for entry in manifest.inputs]
    made = [entry.spec for entry in manifest.outputs]
    for spec in (*given, *made):
        if spec.varying:
            raise UsageError(
                f"the sizes of {spec.name!r} vary, {spec}, and a page has fixed sizes",
                hint=f"build the model with one size, {option('shape')}, and export that",
            )


def _call(manifest: Manifest) -> str:
    """Return the inputs of a call in JavaScript."""
    specs = [entry.spec for entry in manifest.inputs]
    words = (
        f"{json.dumps(spec.name)}: new {_ARRAYS.get(spec.dtype, 'Uint8Array')}({spec.elements})"
        for spec in specs
    )
    return ", ".join(words)
