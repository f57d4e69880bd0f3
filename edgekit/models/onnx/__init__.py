"""Import ONNX models into Relax: every shape fixed, weights constant, gaps repaired or reported.

`files` reads, `binding` closes open shapes, `importer` walks the graph, `operators` has one
converter per operator, `scanning` lists a file's content without importing it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import MissingToolError
from edgekit.base.tvm_compat import load_tvm

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.models.model import Model, ModelScan, ModelSource, Signature


def load(source: ModelSource, events: Events) -> Model:
    """Import the model as a Relax module."""
    _require_onnx()
    load_tvm()
    from edgekit.models.onnx.loading import load_model

    return load_model(source, events)


def with_ends(model: Model) -> Model:
    """Return a model of any format with the ends of its source around it."""
    _require_onnx()
    from edgekit.models.onnx.ends.joining import joined

    return joined(model, model.source.ends)


def scan(source: ModelSource) -> ModelScan:
    """List the content of any readable model, and the parts that can't be compiled."""
    _require_onnx()
    load_tvm()
    from edgekit.models.onnx.scanning import scan_model

    return scan_model(source)


def signature(source: ModelSource) -> Signature:
    """Return the inputs and outputs with the quantisation that the nodes next to them have."""
    _require_onnx()
    from edgekit.models.model import Signature
    from edgekit.models.onnx.binding import bind, declared
    from edgekit.models.onnx.files import read_program
    from edgekit.models.onnx.quantised_ends import inputs_with_steps, outputs_with_steps

    graph = read_program(source).graph
    inputs = inputs_with_steps(graph, bind(graph, source).inputs)
    return Signature(inputs, outputs_with_steps(graph, declared(list(graph.output))))


def check_inputs(source: ModelSource) -> None:
    """Raise ModelError if an input's shape is open."""
    _require_onnx()
    from edgekit.models.onnx.binding import bind
    from edgekit.models.onnx.files import read_program

    bind(read_program(source, weights=False).graph, source)


def content_files(path: Path) -> tuple[Path, ...]:
    """Return the model file and its weight files, which the model's hash must cover."""
    _require_onnx()
    from edgekit.models.onnx.files import external_files, read_structure

    return (path, *external_files(path, read_structure(path)))


def _require_onnx() -> None:
    if find_spec("onnx") is None:
        raise MissingToolError(
            "reading an ONNX model needs the Python package onnx, which is not installed",
            hint="pip install 'edgekit[onnx]'",
        )
