"""Any model file to one `Model`: a Relax module, its inputs and outputs, its content hash.

`open_model` looks at the file without TVM (fast; enough for the cache key and the oracle);
`scan_model` lists what is in it; `import_model` turns it into Relax. What importers get wrong is
repaired in `edgekit/frontends/`, one package a format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.tensors import OpenTensorSpec, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import tvm

ModelFormat = Literal["onnx", "tflite", "torch"]


@dataclass(frozen=True)
class ModelSource:
    """A model file and how its open ends are to be closed."""

    path: Path
    format: ModelFormat
    sha256: str
    """Of everything that decides the module: the file, its external data, shapes, constants."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Inputs that stop being inputs: bound to these values when the model is imported."""

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class OperatorCount:
    name: str
    count: int


@dataclass(frozen=True)
class UnsupportedOperator:
    """An operator that can't be imported: the first node that uses it, and how many do."""

    name: str
    node: str
    reason: str
    count: int


@dataclass(frozen=True)
class ModelScan:
    """What a model file says about itself, before anything is compiled."""

    inputs: tuple[OpenTensorSpec, ...]
    outputs: tuple[OpenTensorSpec, ...]
    operators: tuple[OperatorCount, ...]
    """In the words of the file's own format, most frequent first."""
    parameters: int
    parameter_bytes: int
    unsupported: tuple[UnsupportedOperator, ...]


@dataclass(frozen=True)
class Model:
    """A model as the compiler takes it."""

    source: ModelSource
    module: tvm.IRModule
    """One function, `main`: tensors in (in the order of `inputs`), a tensor or a tuple out;
    every shape known; weights are constants."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    repairs: tuple[str, ...]
    """What was mended on the way in, in words a person can read."""
