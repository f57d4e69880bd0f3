"""Runs the exporter of PyTorch programs in a process of its own, and hands on its ONNX model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import edgekit.base.errors
from edgekit.base.cache import BuildCache
from edgekit.base.children import TimeoutExpired, module_command, run
from edgekit.base.errors import EdgekitError, MissingToolError, UnsupportedModelError
from edgekit.base.events import Events
from edgekit.base.files import sha256_bytes, sha256_file
from edgekit.base.parent_process import parent_environment
from edgekit.base.tensors import TensorSpec
from edgekit.models.model import ModelSource

_MODEL = "model.onnx"
_SECONDS = 3600


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
    request = {
        "path": str(source.path.absolute()),
        "inputs": [(spec.name, spec.dtype, spec.shape) for spec in inputs],
        "target": str(target),
    }
    command = module_command("edgekit.models.torch.exporter", json.dumps(request))
    try:
        # Ctrl-C kills the process that waits here.
        environment = {**os.environ, **parent_environment()}
        done = run(command, limit_s=_SECONDS, environment=environment)
    except TimeoutExpired as error:
        raise UnsupportedModelError(
            f"PyTorch did not convert {source.path.name} to ONNX within an hour",
            hint="export a simpler form of the module, or save it as ONNX",
        ) from error
    if done.status == 0 and target.is_file():
        return
    lines = done.output.splitlines()
    if done.status == 0 and lines:
        report = json.loads(lines[-1])
        kind: type[EdgekitError] = getattr(edgekit.base.errors, report["type"])
        raise kind(report["message"], hint=report["hint"], details=tuple(report["details"]))
    raise UnsupportedModelError(
        f"PyTorch's exporter cannot convert {source.path.name}: {done.last_words}",
        hint="export a simpler form of the module, or save it as ONNX",
    )
