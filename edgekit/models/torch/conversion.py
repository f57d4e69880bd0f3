"""Runs the exporter of PyTorch programs in a process of its own, and hands on its ONNX model."""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from edgekit.base.cache import BuildCache
from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import EdgekitError, MissingToolError, UnsupportedModelError
from edgekit.base.events import Events
from edgekit.base.files import sha256_bytes, sha256_file
from edgekit.base.tensors import TensorSpec
from edgekit.models.model import ModelSource

_MODEL = "model.onnx"
_EXPORTER = "edgekit.models.torch.exporter"
_SECONDS = 3600
_IDLE_SECONDS = 20


@contextmanager
def converted(
    source: ModelSource, inputs: tuple[TensorSpec, ...], events: Events
) -> Iterator[ModelSource]:
    """Give the program for these inputs as an ONNX model, from the cache where it is known."""
    for package in ("torch", "onnxscript", "onnx"):
        if find_spec(package) is None:
            raise MissingToolError(
                f"reading .pt2 models needs the Python package {package}, which is not installed",
                hint="pip install 'edgekit[torch]'",
            )
    cache, key = BuildCache(), _key(source, inputs)
    with cache.locked(key):
        model = (cache.find(key) or cache.content(key)) / _MODEL
        if not model.is_file():
            with (
                events.stage("convert the PyTorch program to ONNX"),
                cache.storing(key, "conversion", f"{source.name} as ONNX") as folder,
            ):
                _export(source, inputs, folder / _MODEL)
        yield replace(source, path=model, format="onnx", shapes={}, files=())


def _key(source: ModelSource, inputs: tuple[TensorSpec, ...]) -> str:
    """Hash the program, its shapes, and everything that converts it."""
    here = Path(__file__).parent
    ingredients = [
        sha256_file(source.path),
        [astuple(spec) for spec in inputs],
        [version(package) for package in ("torch", "onnxscript", "onnx")],
        [sha256_file(file) for file in sorted(here.glob("*.py"))],
    ]
    return sha256_bytes(json.dumps(ingredients, default=str).encode())


def _export(source: ModelSource, inputs: tuple[TensorSpec, ...], target: Path) -> None:
    message = (source.path.absolute(), inputs, target.absolute())
    with _exporter() as child:
        try:
            try:
                child.ask(message, _SECONDS)
            except ChildGone as gone:
                if gone.code != 0:
                    raise
                child.ask(message, _SECONDS)  # it ended, because it had nothing to do
        except ChildGone as gone:
            name = source.path.name
            raise UnsupportedModelError(
                f"PyTorch did not convert {name} to ONNX within an hour"
                if gone.silent
                else f"PyTorch's exporter cannot convert {name}: {gone.reason}",
                hint="export a simpler form of the module, or save it as ONNX",
            ) from gone


@contextmanager
def _exporter() -> Iterator[Child]:
    """Give an exporter that is idle. The main thread keeps one for the next program, because torch
    takes seconds to import; a child ends with the thread that started it."""
    if threading.current_thread() is not threading.main_thread():
        with Child(_EXPORTER, str(_IDLE_SECONDS)) as child:
            yield child
        return
    child = kept_exporter(os.getpid())
    try:
        yield child
    except EdgekitError:  # it refused the program, and takes the next one
        raise
    except BaseException:
        child.end()
        raise


@cache
def kept_exporter(owner: int) -> Child:
    """Return the exporter of this process's main thread, which may have ended."""
    child = Child(_EXPORTER, str(_IDLE_SECONDS))
    atexit.register(child.end)
    return child
