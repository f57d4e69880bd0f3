"""LiteRT's fixed-point multiplication as one operator, in a CPU's vector instructions.

From a formula with 64-bit products, LLVM would multiply 64-bit numbers, which costs three times as
much on x86 and is done one by one on ARM. On x86 this module multiplies every other lane at a time.
ARM has an instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.op import register_op_attr

_NAME = "tirx.edgekit_rescale"
_PURE = 1
_LEVEL = 10
_NUDGE = 1 << 30
"""Half a step of the bits that are shifted out of a product."""


def rescaled(value: Any, factor: Any, shift: Any, half: Any, lean: Any) -> Any:
    """Multiply an int32 by `factor / 2**31`, rounded, and shift it right, rounded again: all int32.

    `half` is half a step of the shift, and `lean` -1 where anything is shifted out, else 0.
    """
    _register()
    return tirx.call_intrin("int32", _NAME, value, factor, shift, half, lean)


@lru_cache(maxsize=1)
def _register() -> None:
    for attribute, value in (
        *(("TVectorizable", True), ("TCallEffectKind", _PURE)),
        ("TScriptPrinterName", "edgekit_rescale"),
    ):
        register_op_attr(_NAME, attribute, value)
    for kind in ("llvm", "opencl", "cuda"):
        tirx.register_intrin_lowering(_NAME, kind, f=_lowered, level=_LEVEL)


def _lowered(call: Any) -> Any:
    value, factor, shift, half, lean = call.args
    lanes = int(tvm_ffi.dtype(str(call.ty)).lanes)
    target = tvm.target.Target.current(allow_none=True)
    triple = "" if target is None else str(target.attrs.get("mtriple", ""))
    if triple.startswith("aarch64") and lanes == 4:
        return _bound(_llvm("sqrdmulh", value, factor), lambda high: _rounded_on_arm(high, shift))
    product = _by_pairs(value, factor, lanes) if lanes % 2 == 0 else _one_by_one(value, factor)
    return _bound(
        product,
        lambda high: tirx.shift_right(high + half + tirx.bitwise_and(_sign(high), lean), shift),
    )


def _one_by_one(value: Any, factor: Any) -> Any:
    wide = str(value.ty).replace("int32", "int64")
    product = tirx.Cast(wide, value) * tirx.Cast(wide, factor)
    return tirx.Cast(
        str(value.ty), tirx.shift_right(product + _like(_NUDGE, wide), _like(31, wide))
    )


def _by_pairs(value: Any, factor: Any, lanes: int) -> Any:
    """Multiply even lanes, then odd ones, each in 64 bits, and return the upper halves."""
    wide = f"int64x{lanes // 2}"
    word, low, high = (_like(number, wide) for number in (32, (1 << 32) - 1, -(1 << 32)))
    nudge, shift, one = (_like(number, wide) for number in (_NUDGE, 31, 1))

    def of_pairs(values: Any, factors: Any) -> Any:
        even = _low(values, word) * _low(factors, word) + nudge
        odd = tirx.shift_right(values, word) * tirx.shift_right(factors, word) + nudge
        return tirx.bitwise_or(
            tirx.bitwise_and(tirx.shift_right(even, shift), low),
            tirx.bitwise_and(tirx.shift_left(odd, one), high),
        )

    pairs, others = tirx.reinterpret(wide, value), tirx.reinterpret(wide, factor)
    joined = _bound(pairs, lambda a: _bound(others, lambda b: of_pairs(a, b)))
    return tirx.reinterpret(f"int32x{lanes}", joined)


def _low(pairs: Any, word: Any) -> Any:
    return tirx.shift_right(tirx.shift_left(pairs, word), word)


def _rounded_on_arm(high: Any, shift: Any) -> Any:
    """Round the shift away from zero: ARM rounds up, so subtract one from negative values."""
    left = _like(0, str(high.ty)) - shift
    one_less = tirx.shift_right(tirx.bitwise_and(high, left), _like(31, str(high.ty)))
    return _llvm("srshl", high + one_less, left)


def _sign(high: Any) -> Any:
    return tirx.shift_right(high, _like(31, str(high.ty)))


def _llvm(name: str, *operands: Any) -> Any:
    return tirx.call_llvm_pure_intrin("int32x4", f"llvm.aarch64.neon.{name}", *operands)


def _like(number: int, dtype: str) -> Any:
    return tirx.const(number, dtype)


def _bound(value: Any, formula: Callable[[Any], Any]) -> Any:
    """Return the formula of a value that is computed once."""
    variable = tirx.Var("v", str(value.ty))
    return tirx.Let(variable, value, formula(variable))
