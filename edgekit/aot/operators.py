"""The operators of a bare-metal program's steps, as data: every number that the C will contain.

Images are channels last, without a batch. Quantised tensors are int8; `real = scale * (stored -
zero_point)`. All arithmetic is LiteRT's, to the last step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.compiler.loops import BranchRule, LoopRule


@dataclass(frozen=True)
class FixedPoint:
    """multiplier * 2**(shift - 31): the factor of an int32, rounded as LiteRT rounds."""

    multiplier: int
    shift: int


@dataclass(frozen=True)
class Rescale:
    """The conversion of int32 sums to stored int8: one factor, or one for each output channel."""

    factors: tuple[FixedPoint, ...]
    zero_point: int
    low: int
    """The least stored value: a fused activation is a narrower range."""
    high: int
    rounds_once: bool = False
    """Fully connected layers round once, ties away from zero; all others twice."""


@dataclass(frozen=True)
class Scales:
    """The model's own scales, of which factors were made: another compiler makes them again."""

    inputs: tuple[float, ...]
    result: float
    weights: tuple[float, ...] = ()
    """One scale, or one for each output channel."""


@dataclass(frozen=True)
class Window:
    """A kernel's window over an image; `padding` is top, left, bottom, right."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Image:
    height: int
    width: int
    channels: int

    @property
    def elements(self) -> int:
        return self.height * self.width * self.channels


@dataclass(frozen=True, eq=False)
class Conv2D:
    source: Image
    result: Image
    window: Window
    weights: Array
    """int8, output channel, row, column, input channel."""
    bias: Array
    """int32, one for each output channel, without the input's zero point."""
    zero_point: int
    """The input's zero point, the value of padding."""
    rescale: Rescale
    scales: Scales | None = None


@dataclass(frozen=True, eq=False)
class DepthwiseConv2D:
    """Output channel c * multiplier + m depends on input channel c alone."""

    source: Image
    result: Image
    window: Window
    weights: Array
    """int8, row, column, output channel."""
    bias: Array
    zero_point: int
    rescale: Rescale
    scales: Scales | None = None

    @property
    def multiplier(self) -> int:
        return self.result.channels // self.source.channels


@dataclass(frozen=True, eq=False)
class FullyConnected:
    rows: int
    """The number of vectors it is applied to."""
    weights: Array
    """int8, output, input."""
    bias: Array
    zero_point: int
    rescale: Rescale
    scales: Scales | None = None

    def as_convolution(self) -> Conv2D:
        """Return a convolution whose pixels are the rows."""
        outputs, inputs = self.weights.shape
        return Conv2D(
            source=Image(self.rows, 1, inputs),
            result=Image(self.rows, 1, outputs),
            window=Window((1, 1)),
            weights=self.weights.reshape(outputs, 1, 1, inputs),
            bias=self.bias,
            zero_point=self.zero_point,
            rescale=self.rescale,
            scales=self.scales,
        )


@dataclass(frozen=True, eq=False)
class Operand:
    """One side of an element-wise operation, and the factor applied to it first."""

    shape: tuple[int, ...]
    zero_point: int
    factor: FixedPoint
    constant: Array | None = None
    """int8; a side that is constant is not among the step's inputs."""


@dataclass(frozen=True, eq=False)
class Add:
    """left + right, or left - right, broadcast; both shifted left by `left_shift` first."""

    left: Operand
    right: Operand
    left_shift: int
    negate_right: bool
    shape: tuple[int, ...]
    rescale: Rescale
    scales: Scales | None = None


@dataclass(frozen=True, eq=False)
class Multiply:
    left: Operand
    right: Operand
    """The right side. Neither side's factor is used."""
    shape: tuple[int, ...]
    rescale: Rescale
    scales: Scales | None = None


@dataclass(frozen=True)
class AveragePool:
    """The average over the part of the window inside the image, rounded half away from zero."""

    source: Image
    result: Image
    window: Window
    low: int
    high: int


@dataclass(frozen=True)
class MaxPool:
    source: Image
    result: Image
    window: Window
    low: int
    high: int


@dataclass(frozen=True)
class Mean:
    """The mean over height and width, in another quantisation; the factor includes their
    product."""

    source: Image
    zero_point: int
    rescale: Rescale
    scales: Scales | None = None


@dataclass(frozen=True)
class Softmax:
    """Softmax over the last axis; input scaled by beta * scale, output 1/256 from -128."""

    rows: int
    columns: int
    factor: FixedPoint
    least_difference: int
    """The distance from the largest value below which the result is zero."""


@dataclass(frozen=True)
class Lookup:
    """A table from byte to byte: sigmoid, tanh, hard-swish, leaky ReLU, requantisation."""

    elements: int
    function: str
    """The function in the table, for its name."""
    table: tuple[int, ...]
    """The 256 results, that of -128 first."""


@dataclass(frozen=True)
class Quantize:
    """Quantisation of float32, half away from zero."""

    elements: int
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Dequantize:
    elements: int
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Pad:
    """Any rank; `value` is a stored one."""

    shape: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: int


@dataclass(frozen=True)
class Concatenate:
    """Concatenation of parts that are all in the output's quantisation."""

    shapes: tuple[tuple[int, ...], ...]
    axis: int


@dataclass(frozen=True)
class ResizeNearest:
    source: Image
    result: Image
    rows: tuple[int, ...]
    """The source row of each result row."""
    columns: tuple[int, ...]


@dataclass(frozen=True)
class CheckIndices:
    """Clamp indices to the tensor that they address; report whether one was outside."""

    elements: int
    source: str
    """The type of the incoming indices; they leave as `result`."""
    result: str
    extents: tuple[int, ...]
    """One extent for all indices, or one for each entry of the last axis."""
    counts_from_end: bool


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A fused function of TVM: any operator that is not above, mostly in floats."""

    function: Any
    """A PrimFunc: its parameters are the step's inputs, then `constants`, then its outputs."""
    constants: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant of the model."""

    array: Array


Argument = int | Weight
"""A place among the step's inputs, or a constant."""


@dataclass(frozen=True, eq=False)
class CallKernel:
    """A call of a kernel in machine code: its operands, then the step's outputs."""

    kernel: str
    operands: tuple[Argument, ...]


@dataclass(frozen=True, eq=False)
class CallRegion:
    """A call of a vendor library's region."""

    symbol: str
    operands: tuple[Argument, ...]


@dataclass(frozen=True, eq=False)
class NpuRegion:
    """Steps that an accelerator runs in one call, compiled by its vendor's compiler."""

    maker: str
    """The name of the generator that compiled it."""
    operators: tuple[str, ...]
    compiled: Any
    """What that generator needs to offer a kernel."""


@dataclass(frozen=True, eq=False)
class HoldIndices:
    """Indices counted from the start; one outside of its tensor ends the run."""

    tensor: str
    extents: tuple[int, ...]
    counts_from_end: bool
    given: str
    """The type of the indices as they are given."""
    result: str
    elements: int


@dataclass(frozen=True, eq=False)
class Copy:
    """An output that is an input, a constant or another output."""

    operands: tuple[Argument, ...]


@dataclass(frozen=True, eq=False)
class Loop:
    """A list of steps that is repeated: its inputs are slices, states and what stays the same."""

    rule: LoopRule
    operands: tuple[Argument, ...]
    bodies: tuple[Any, ...]
    """The one list of steps as a Program, whose module imports this one."""

    @property
    def body(self) -> Any:
        return self.bodies[0]


@dataclass(frozen=True, eq=False)
class Branch:
    """Two lists of steps of which one runs; their inputs are the operands after the first, which
    decides."""

    rule: BranchRule
    operands: tuple[Argument, ...]
    bodies: tuple[Any, ...]


CONTROL = Loop, Branch
"""Operators that run lists of steps."""

Operator = (
    Conv2D
    | DepthwiseConv2D
    | FullyConnected
    | Add
    | Multiply
    | AveragePool
    | MaxPool
    | Mean
    | Softmax
    | Lookup
    | Quantize
    | Dequantize
    | Pad
    | Concatenate
    | ResizeNearest
    | CheckIndices
    | LoopNest
    | CallKernel
    | CallRegion
    | NpuRegion
    | HoldIndices
    | Copy
    | Loop
    | Branch
)
