"""Small C functions for operations that C leaves undefined or has no operator for.

Their results are those of the passes defined_arithmetic.py and propagate_nan.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.aot.c_text import C_TYPES, float_text, integer_text

FLOATS = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
WRAPPING = ("int32", "int64")
"""Types whose overflow C leaves undefined. Narrower ones are computed as int, except for a product
of uint16."""


def _function(name: str, result: str, parameters: str, *body: str) -> tuple[str, str]:
    lines = "".join(f"    {line}\n" for line in body)
    word = C_TYPES[result]
    return name, f"static inline {word} {name}({parameters})\n{{\n{lines}}}\n"


def _two(dtype: str) -> str:
    return f"{C_TYPES[dtype]} a, {C_TYPES[dtype]} b"


def _all() -> Iterator[tuple[str, str]]:
    for name, sign in (("max", ">"), ("min", "<")):
        for dtype in C_TYPES:
            yield _function(f"ek_{name}_{dtype}", dtype, _two(dtype), f"return a {sign} b ? a : b;")
        for dtype in FLOATS:
            yield _function(
                f"ek_{name}imum_{dtype}",
                dtype,
                _two(dtype),
                f"return a {sign} b || a != a ? a : b; /* NaN where either is */",
            )
    for dtype in INTEGERS:
        yield from _divisions(dtype)
    for dtype in WRAPPING:
        yield from _wrapping(dtype)
    for dtype in SIGNED:
        unsigned = C_TYPES[f"u{dtype}"]
        yield _function(
            f"ek_shift_left_{dtype}",
            dtype,
            _two(dtype),
            f"return ({C_TYPES[dtype]})({unsigned})(({unsigned})a << b);"
            if dtype in WRAPPING
            else f"return ({C_TYPES[dtype]})({unsigned})((uint32_t)a << b);",
        )
    for source in FLOATS:
        for dtype in INTEGERS:
            yield _conversion(dtype, source)


def _divisions(dtype: str) -> Iterator[tuple[str, str]]:
    word = C_TYPES[dtype]
    least = integer_text(int(np.iinfo(dtype).min), dtype)
    overflow = f"b == -1 && a == {least}"
    is_signed = dtype in SIGNED
    for name, sign, overflown in (("div", "/", "a"), ("mod", "%", "0")):
        body = ["if (b == 0) {", "    return 0;", "}"]
        if is_signed:
            body += [f"if ({overflow}) {{", f"    return {overflown};", "}"]
        yield _function(
            f"ek_{name}_{dtype}", dtype, _two(dtype), *body, f"return ({word})(a {sign} b);"
        )


def _wrapping(dtype: str) -> Iterator[tuple[str, str]]:
    word, unsigned = C_TYPES[dtype], C_TYPES[f"u{dtype}"]
    for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
        yield _function(
            f"ek_{name}_{dtype}",
            dtype,
            _two(dtype),
            f"return ({word})(({unsigned})a {sign} ({unsigned})b); /* wraps around */",
        )


def _conversion(dtype: str, source: str) -> tuple[str, str]:
    """Convert to the nearest integer, 0 for NaN; narrow types take the low bits of 32."""
    wide = {"int64": "int64", "uint32": "int64", "uint64": "int64"}.get(dtype, "int32")
    limits = np.iinfo(wide)
    top = -float(limits.min)
    least, most = (integer_text(int(limit), wide) for limit in (limits.min, limits.max))
    word = C_TYPES[dtype]
    first = []
    if dtype == "uint64":
        above = float_text(2.0**64, source)
        first = [
            f"if (a >= {float_text(top, source)}) {{",
            f"    return a >= {above} ? UINT64_MAX : ({word})a;",
            "}",
        ]
    return _function(
        f"ek_{dtype}_of_{source}",
        dtype,
        f"{C_TYPES[source]} a",
        *first,
        "if (a != a) {",
        "    return 0; /* NaN */",
        "}",
        f"if (a >= {float_text(top, source)}) {{",
        f"    return ({word}){most};",
        "}",
        f"return ({word})(a < {float_text(-top, source)} ? {least} : ({C_TYPES[wide]})a);",
    )


HELPERS = dict(_all())
"""Whole functions by name."""
