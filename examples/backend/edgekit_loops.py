"""A backend for edgekit: convolution, batch norm and ReLU as one loop of plain C++.

docs/adding/backend.md walks through this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.base import GeneratedRegion, Layer, Option, Options, Refused, Region, Rule
from edgekit.backends.source import region_source

if TYPE_CHECKING:
    from edgekit.backends.match import Match
    from edgekit.base.events import Events
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain


def conv_norm_relu() -> Rule:
    """What the pattern looks like, and the names that `take_conv` knows its parts by."""
    from tvm.relax.dpl import is_const, is_op, is_tuple_get_item, wildcard

    data, weight, bias = wildcard(), is_const(), is_const()
    gamma, beta, mean, variance = is_const(), is_const(), is_const(), is_const()
    conv = is_op("relax.nn.conv2d")(data, weight)
    normed = conv | is_op("relax.add")(conv, bias)
    norm = is_op("relax.nn.batch_norm")(normed, gamma, beta, mean, variance)
    return Rule(
        name="conv_norm_relu",
        pattern=is_op("relax.nn.relu")(is_tuple_get_item(norm, 0)),
        parts={
            "data": data, "weight": weight, "bias": bias, "conv": conv, "norm": norm,
            "gamma": gamma, "beta": beta, "mean": mean, "variance": variance,
        },
        take=take_conv,
    )  # fmt: skip


def take_conv(match: Match) -> Layer:
    """The layer for a match, or why there is none."""
    match.require_float32("data")
    conv, norm = match.attrs("conv"), match.attrs("norm")
    if str(conv.data_layout) != "NCHW" or str(conv.kernel_layout) != "OIHW":
        raise Refused(f"its layout is {conv.data_layout}, and the loops walk through NCHW")
    if int(norm.axis) != 1:
        raise Refused("its batch norm is not over the channels")
    variance = match.weights("variance").astype("float64")
    scale = match.weights("gamma") / np.sqrt(variance + float(norm.epsilon))
    bias = match.weights("bias").reshape(-1) if match.has("bias") else 0.0
    shift = match.weights("beta") + (bias - match.weights("mean")) * scale
    return Layer(
        kind="ConvNormRelu",
        inputs=("data",),
        settings={
            "strides": tuple(int(step) for step in conv.strides),
            "padding": tuple(int(edge) for edge in conv.padding[:2]),
            "dilation": tuple(int(step) for step in conv.dilation),
            "groups": int(conv.groups),
        },
        weights={
            "weight": match.weights("weight"),
            "scale": scale.astype("float32"),
            "shift": shift.astype("float32"),
        },
    )


@dataclass(frozen=True)
class Loops:
    name: str = "loops"
    title: str = "plain loops"
    version: str = "1.0"
    architectures: tuple[str, ...] = ("aarch64", "x86_64")
    options: Mapping[str, Option] = field(default_factory=dict)
    before_folding: bool = True  # a batch norm that is folded into its convolution is gone
    include: Path | None = None

    def rules(self, options: Options) -> Sequence[Rule]:
        return [conv_norm_relu()]

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        """One call of `conv` for each step; what passes between steps lies in vectors."""
        place = {t.name: f"data(inputs[{i}])" for i, t in enumerate(region.inputs)}
        leaves = {t.name: f"data(outputs[{i}])" for i, t in enumerate(region.outputs)}
        lines, weights = [], b""
        for number, step in enumerate(region.steps):
            (source,), (target,) = step.inputs, step.outputs
            if target.name not in leaves:
                lines.append(f"std::vector<float> t{number}({target.nbytes // 4});")
            written = leaves.get(target.name, f"t{number}.data()")
            layer = step.layer
            settings = [layer.settings[name] for name in ("strides", "padding", "dilation")]
            numbers = [*source.shape, *target.shape[1:], *layer.weights["weight"].shape[2:]]
            numbers += [number for pair in settings for number in pair]
            shape = ", ".join(map(str, [*numbers, layer.settings["groups"]]))
            parts = f"{place[source.name]}, weights.data + {len(weights)}, {written}"
            lines.append(f"conv({parts}, {{{shape}}});")
            place[target.name] = written
            weights += b"".join(layer.weights[w].tobytes() for w in ("weight", "scale", "shift"))
        code = LOOPS.replace("CALLS", "\n    ".join(lines))
        blobs = {"weights": weights}
        source_file = region_source(region, ["vector"], code, "Loops", blobs)
        return GeneratedRegion(region.symbol, self.name, source_file, blobs)

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        return ""  # there is no library that could differ

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> None:
        return None


LOOPS = """
struct Conv { long n, c, h, w, oc, oh, ow, kh, kw, sy, sx, py, px, dy, dx, groups; };

class Loops {
 public:
  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {
    CALLS
  }

 private:
  static float* data(const DLTensor* tensor) {
    return static_cast<float*>(edgekit::data_of(tensor));
  }

  static void conv(const float* x, const void* bytes, float* y, const Conv& k) {
    const long in = k.c / k.groups, out = k.oc / k.groups;
    const float* weight = static_cast<const float*>(bytes);
    const float* scale = weight + k.oc * in * k.kh * k.kw;
    const float* shift = scale + k.oc;
    for (long n = 0; n < k.n; ++n)
      for (long o = 0; o < k.oc; ++o)
        for (long i = 0; i < k.oh; ++i)
          for (long j = 0; j < k.ow; ++j) {
            float sum = 0;
            for (long c = 0; c < in; ++c)
              for (long a = 0; a < k.kh; ++a)
                for (long b = 0; b < k.kw; ++b) {
                  const long row = i * k.sy - k.py + a * k.dy, column = j * k.sx - k.px + b * k.dx;
                  if (row < 0 || row >= k.h || column < 0 || column >= k.w) continue;
                  sum += x[((n * k.c + o / out * in + c) * k.h + row) * k.w + column] *
                         weight[((o * in + c) * k.kh + a) * k.kw + b];
                }
            const float value = sum * scale[o] + shift[o];
            *y++ = value < 0 ? 0 : value;  // NaN stays NaN
          }
  }
};
"""

BACKEND = Loops()
