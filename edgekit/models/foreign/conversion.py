"""Converts files that can run code in a process of its own, and keeps what comes out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgekit.base.cache import BuildCache
from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import UnsupportedModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_bytes, sha256_file
from edgekit.models.foreign_formats import LOADERS, ForeignFormat, Loader
from edgekit.models.model import ModelSource

_CONVERTER = "edgekit.models.foreign.converter"
_SECONDS = 3600


def translation(source: ModelSource, events: Events = SILENT) -> ModelSource:
    """Return the model as one that an importer reads, from the cache where it is known."""
    kind: ForeignFormat = source.format  # type: ignore[assignment]
    loader, shapes = LOADERS[kind], _shapes(source)
    cache, key = BuildCache(), _key(source, loader, shapes)
    with cache.locked(key):
        path = (cache.find(key) or cache.content(key)) / f"{source.name}{loader.suffix}"
        if not path.is_file():
            title = f"{source.path.name} as {loader.suffix}"
            with (
                events.stage(f"load {source.path.name} and convert it to {loader.suffix}"),
                cache.storing(key, "conversion", title) as folder,
            ):
                _convert(kind, source, shapes, folder / path.name)
    return replace(source, path=path, format=loader.becomes, files=())


def _shapes(source: ModelSource) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes that are known: those given, and those of inputs with constant values."""
    constants = {name: tuple(value.shape) for name, value in source.constants.items()}
    return dict(sorted({**constants, **source.shapes}.items()))


def _key(source: ModelSource, loader: Loader, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Hash the file, its shapes, and everything that converts it."""
    ingredients = [
        [source.format, source.name],
        [sha256_file(file) for file in source.files],
        list(shapes.items()),
        [_version(package) for package in loader.packages],
        [sha256_file(file) for file in sorted(Path(__file__).parent.glob("*.py"))],
    ]
    return sha256_bytes(json.dumps(ingredients).encode())


def _version(package: str) -> str:
    for distribution in (package, f"{package}-cpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "unknown"


def _convert(
    kind: ForeignFormat,
    source: ModelSource,
    shapes: Mapping[str, tuple[int, ...]],
    target: Path,
) -> None:
    name = source.path.name
    with tempfile.TemporaryDirectory(prefix="edgekit-") as home:
        environment = {
            "CUDA_VISIBLE_DEVICES": "",
            "KERAS_BACKEND": "torch",
            "KERAS_HOME": home,  # it writes its settings there
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        with Child(_CONVERTER, environment=environment) as child:
            try:
                child.ask((kind, source.path.absolute(), dict(shapes), target.absolute()), _SECONDS)
            except ChildGone as gone:
                raise UnsupportedModelError(
                    f"{name} was not converted within an hour"
                    if gone.silent
                    else f"{LOADERS[kind].name} of {name} cannot be converted: {gone.reason}",
                    hint="export a simpler form of the model, or save it as ONNX",
                ) from gone
