"""Functions in LLVM's language, written as expressions of Python: one line for each operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgekit.compiler.llvm_functions import constant, like, llvm_type, scalar

Number = float | int


class Lines:
    """The lines of one function, and what it calls."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.declarations: dict[str, str] = {}
        """The declarations of LLVM's own functions, by their names."""

    def named(self, dtype: str, instruction: str) -> Value:
        """Add a line, and return the value that it names."""
        name = f"%v{len(self.texts)}"
        self.texts.append(f"{name} = {instruction}")
        return Value(self, dtype, name)

    def call(self, name: str, dtype: str, operand: Value) -> Value:
        """Call a function of LLVM's own that is overloaded by its operand."""
        result, given = llvm_type(dtype), llvm_type(operand.dtype)
        lanes = operand.dtype[len(scalar(operand.dtype)) + 1 :]
        kind = llvm_type(scalar(operand.dtype)).replace("float", "f32").replace("double", "f64")
        symbol = f"@llvm.{name}.{f'v{lanes}' if lanes else ''}{kind}"
        self.declarations[symbol] = f"declare {result} {symbol}({given})"
        return self.named(dtype, f"call {result} {symbol}({given} {operand.text})")


@dataclass(frozen=True, eq=False)
class Value:
    """A number, or a vector of them."""

    lines: Lines
    dtype: str
    """TVM's name of its type."""
    text: str

    def __add__(self, other: Value | Number) -> Value:
        return self._with("add", other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._with("sub", other)

    def __mul__(self, other: Value | Number) -> Value:
        return self._with("mul", other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._with("div", other)

    def __rsub__(self, other: Number) -> Value:
        return self.number(other) - self

    def __rtruediv__(self, other: Number) -> Value:
        return self.number(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __lshift__(self, places: int) -> Value:
        return self._of_bits("shl", places)

    def __rshift__(self, places: int) -> Value:
        return self._of_bits("ashr", places)

    def __and__(self, other: Value | int) -> Value:
        return self._of_bits("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._of_bits("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._of_bits("xor", other)

    def __lt__(self, other: Value | Number) -> Value:
        return self._compared("olt", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._compared("ogt", other)

    def equals(self, other: Value | Number) -> Value:
        return self._compared("oeq" if self._is_float else "eq", other)

    def is_nan(self) -> Value:
        return self._compared("uno", self)

    def is_not_within(self, limit: float) -> Value:
        """Tell whether it is above a limit, or NaN."""
        return self._compared("ugt", limit)

    def chosen(self, yes: Value, no: Value | Number) -> Value:
        """Choose by a truth."""
        other = yes.number(no)
        kind, result = llvm_type(self.dtype), llvm_type(yes.dtype)
        text = f"select {kind} {self.text}, {result} {yes.text}, {result} {other.text}"
        return self.lines.named(yes.dtype, text)

    def converted(self, kind: str, how: Literal["fpext", "fptrunc", "trunc", "bitcast"]) -> Value:
        """Convert to a type with as many lanes."""
        dtype = like(self.dtype, kind)
        text = f"{how} {llvm_type(self.dtype)} {self.text} to {llvm_type(dtype)}"
        return self.lines.named(dtype, text)

    @property
    def bits(self) -> Value:
        """The bits of a float, as an integer."""
        return self.converted(scalar(self.dtype).replace("float", "int"), "bitcast")

    @property
    def as_float(self) -> Value:
        """The float that has these bits."""
        return self.converted(scalar(self.dtype).replace("int", "float"), "bitcast")

    @property
    def size(self) -> Value:
        """The absolute value."""
        return (self.bits & np.iinfo(self._integer).max).as_float

    @property
    def sign(self) -> Value:
        """The sign bit alone, in its place."""
        return self.bits & np.iinfo(self._integer).min

    def root(self) -> Value:
        return self.lines.call("sqrt", self.dtype, self)

    def number(self, other: Value | Number) -> Value:
        """Return a constant of this type; a value is returned unchanged."""
        if isinstance(other, Value):
            return other
        if scalar(self.dtype) == "float32":
            other = float(np.float32(other))
        return Value(self.lines, self.dtype, constant(other, self.dtype))

    @property
    def _is_float(self) -> bool:
        return "float" in self.dtype

    @property
    def _integer(self) -> str:
        return scalar(self.dtype).replace("float", "int")

    def _with(self, operation: str, other: Value | Number) -> Value:
        return self._of_bits(f"f{operation}" if self._is_float else operation, other)

    def _of_bits(self, operation: str, other: Value | Number) -> Value:
        text = f"{operation} {llvm_type(self.dtype)} {self.text}, {self.number(other).text}"
        return self.lines.named(self.dtype, text)

    def _compared(self, how: str, other: Value | Number) -> Value:
        operation = "fcmp" if self._is_float else "icmp"
        text = f"{operation} {how} {llvm_type(self.dtype)} {self.text}, {self.number(other).text}"
        return self.lines.named(like(self.dtype, "bool"), text)
