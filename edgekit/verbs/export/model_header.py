"""Writes model.h: a model's inputs and outputs for C++. Their names are not trusted."""

from __future__ import annotations

from collections.abc import Iterable

from edgekit.base.arrays import numpy_dtype
from edgekit.base.quoting import c_string
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.manifest import Manifest
from edgekit.version import __version__

_HEADER = """\
// Written by edgekit {version} out of the bundle's manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace model {{

struct TensorInfo {{
  const char* name;
  const char* dtype;  // as numpy names it
  std::vector<int64_t> shape;     // where a size varies, its largest
  std::vector<int64_t> smallest;  // where a size varies, its smallest
  size_t bytes;
  // If quantised: real = scale * (stored - zero point), one of each, or one for each step along
  // the axis.
  std::vector<double> scales;
  std::vector<int64_t> zero_points;
  int axis;
}};

inline constexpr char kName[] = {name};
inline constexpr char kProgram[] = {program};

inline const std::vector<TensorInfo> kInputs = {{
{inputs}
}};

inline const std::vector<TensorInfo> kOutputs = {{
{outputs}
}};

}}  // namespace model
"""


def model_header(manifest: Manifest, program: str) -> str:
    return _HEADER.format(
        version=__version__,
        name=c_string(manifest.model.name),
        program=c_string(program),
        inputs=_lines(entry.spec for entry in manifest.inputs),
        outputs=_lines(entry.spec for entry in manifest.outputs),
    )


def _lines(specs: Iterable[TensorSpec]) -> str:
    return "\n".join(f"    {_tensor(spec)}," for spec in specs)


def _tensor(spec: TensorSpec) -> str:
    quantization = spec.quantization
    scales = quantization.scales if quantization else ()
    zero_points = quantization.zero_points if quantization else ()
    axis = -1 if quantization is None or quantization.axis is None else quantization.axis
    smallest = {one.dimension: one.smallest for one in spec.varying}
    fields = (
        c_string(spec.name),
        c_string(spec.dtype),
        _braced(spec.shape),
        _braced(smallest.get(i, extent) for i, extent in enumerate(spec.shape)),
        str(spec.elements * numpy_dtype(spec.dtype).itemsize),
        _braced(scales),
        _braced(zero_points),
        str(axis),
    )
    return f"{{{', '.join(fields)}}}"


def _braced(numbers: Iterable[float]) -> str:
    return f"{{{', '.join(repr(number) for number in numbers)}}}"
