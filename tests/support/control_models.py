"""ONNX models whose branches and loops data decides, with inputs that decide each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Decided:
    graph: str
    """The graph in ONNX's own text."""
    feeds: Sequence[Feeds]

    @property
    def proto(self) -> onnx.ModelProto:
        head = '<ir_version: 8, opset_import: ["" : 17]>\n'
        return onnx.parser.parse_model(head + self.graph)


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


BRANCH_INSIDE = Decided(
    """
    g (float[3] x) => (float[3] y, float[3] z) <float[3] w = {1, 2, 3}> {
      zero = Constant <value_float = 0.0> ()
      total = ReduceSum <keepdims = 0> (x)
      positive = Greater (total, zero)
      y, z = If (positive) <
        then_branch = inner () => (float[3] a, float[3] b) {
          ten = Constant <value_float = 10.0> ()
          large = Greater (total, ten)
          a = If (large) <
            then_branch = deep () => (float[3] c) { c = Mul (x, w) },
            else_branch = flat () => (float[3] d) { e = Exp (x) d = Add (e, total) }
          >
          b = Neg (a)
        },
        else_branch = straight () => (float[3] x2, float[3] ones) {
          x2 = Identity (x)
          ones = Constant <value_floats = [1.0, 1.0, 1.0]> ()
        }
      >
    }
    """,
    [{"x": row(1, 2, 3)}, {"x": row(5, 5, 5)}, {"x": row(-1, 0, -2)}],
)
"""An If inside an If: branches compute, and hand inputs and constants through."""

EARLY_EXIT = Decided(
    """
    g (float[2] x, float limit) => (float[2] y, float[2] start, int64 count)
      <int64 most = {20}, bool yes = {1}, int64 none = {0}, float[2] one = {1, 1}> {
      y, start, count = Loop (most, yes, x, one, none) <
        body = step (int64 k, bool c, float[2] v, float[2] kept, int64 n)
            => (bool again, float[2] twice, float[2] kept2, int64 k2) {
          two = Constant <value_float = 2.0> ()
          twice = Mul (v, two)
          kept2 = Identity (kept)
          total = ReduceSum <keepdims = 0> (twice)
          again = Less (total, limit)
          one_more = Constant <value_int = 1> ()
          k2 = Add (k, one_more)
        }
      >
    }
    """,
    [{"x": row(1, 2), "limit": np.array(limit, np.float32)} for limit in (0.0, 10.0, 100.0, 1e30)],
)
"""A Loop that its condition ends after 1, 2, 6 and 20 iterations; one state never changes."""

COUNTED_BY_DATA = Decided(
    """
    g (float[4, 3] x, int64[1] times) => (float[3] y, float z) <bool yes = {1}> {
      first = Constant <value_floats = [0.0, 0.0, 0.0]> ()
      seven = Constant <value_float = 7.0> ()
      y, z = Loop (times, yes, first, seven) <
        body = step (int64 k, bool c, float[3] sum, float held)
            => (bool again, float[3] next, float next_held) {
          again = Identity (c)
          row = Gather (x, k)
          next = Add (sum, row)
          top = ReduceMax <keepdims = 0> (row)
          next_held = Add (held, top)
        }
      >
    }
    """,
    [
        {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "times": numbers(count)}
        for count in (0, 1, 2, 3, 4)
    ],
)
"""A Loop whose number of iterations is an input, none among them."""

LOOP_AROUND_BRANCH = Decided(
    """
    g (int64 n) => (int64 steps, int64 largest)
      <int64 unit = {1}, int64 two = {2}, int64 three = {3}, int64 none = {0}> {
      go = Greater (n, unit)
      last, steps, largest = Loop (, go, n, none, n) <
        body = step (int64 k, bool c, int64 v, int64 count, int64 top)
            => (bool again, int64 next, int64 count2, int64 top2) {
          rest = Mod (v, two)
          odd = Equal (rest, unit)
          next = If (odd) <
            then_branch = up () => (int64 u) { t = Mul (v, three) u = Add (t, unit) },
            else_branch = down () => (int64 d) { d = Div (v, two) }
          >
          count2 = Add (count, unit)
          top2 = Max (top, next)
          again = Greater (next, unit)
        }
      >
    }
    """,
    [{"n": np.array(value)} for value in (1, 2, 6, 7, 27)],
)
"""Collatz's numbers: a Loop without a count around an If, for 0, 1, 8, 16 and 111 iterations."""

LOOP_IN_LOOP = Decided(
    """
    g (float[5] x, float[5] w) => (float[5] y)
      <int64 three = {3}, bool yes = {1}, float half = {0.5}> {
      y = Loop (three, yes, x) <
        body = outer (int64 i, bool c, float[5] v) => (bool c2, float[5] r) {
          c2 = Identity (c)
          shifted = Add (v, w)
          big = ReduceMax <keepdims = 0> (shifted)
          wide = Greater (big, half)
          r = Loop (, wide, shifted) <
            body = inner (int64 j, bool d, float[5] u) => (bool again, float[5] s) {
              s = Mul (u, half)
              top = ReduceMax <keepdims = 0> (s)
              again = Greater (top, half)
            }
          >
        }
      >
    }
    """,
    [
        {"x": row(1, 2, 3, 4, 50), "w": row(0, 1, 0, 1, 0)},
        {"x": row(0, 0, 0, 0, 0), "w": row(0, 0, 0, 0, 0)},
    ],
)
"""A Loop that data ends inside one of three iterations."""

GUARDED_INDEX = Decided(
    """
    g (float[4] x, int64 k) => (float y) <int64 four = {4}> {
      inside = Less (k, four)
      y = If (inside) <
        then_branch = read () => (float a) { a = Gather (x, k) },
        else_branch = nothing () => (float b) { b = ReduceSum <keepdims = 0> (x) }
      >
    }
    """,
    [{"x": row(1, 2, 3, 5), "k": np.array(k)} for k in (0, 3, 9)],
)
"""A branch whose index is outside of its tensor where the other one runs."""

MODELS: Mapping[str, Decided] = {
    "an If inside an If": BRANCH_INSIDE,
    "a Loop with an early exit": EARLY_EXIT,
    "a Loop counted by data": COUNTED_BY_DATA,
    "a Loop around an If": LOOP_AROUND_BRANCH,
    "a Loop inside a Loop": LOOP_IN_LOOP,
    "an index that a branch guards": GUARDED_INDEX,
}
