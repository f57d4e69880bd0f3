"""C identifiers out of a model's own names: readable, short, unique."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGEST = 48
_KIND = re.compile(
    r"(biasadd|matmul|relu6?|add|mul|conv2d|depthwise|avgpool|maxpool|softmax)[0-9]*"
)
"""What an operator does, at the end of its layer's name."""
_WORDS = (
    "alignas alignof and asm auto bool break case catch char class const continue default "
    "delete do double else enum explicit export extern false float for friend goto if inline "
    "int long main mutable namespace new not operator or private protected public register "
    "restrict return short signed sizeof static struct switch template this throw true try "
    "typedef typename typeof union unsigned using virtual void volatile while xor "
    "abs acos acosh asin asinh atan atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp gamma hypot ilogb isinf isnan j0 j1 jn ldexp "
    "lgamma log log10 log1p log2 logb lrint lround modf nan nearbyint pow remainder rint round "
    "scalbn signgam sin sinh sqrt tan tanh tgamma trunc y0 y1 yn memcpy memset memmove memcmp "
    "strlen strcpy strcmp index rindex bcmp bcopy bzero linux unix i386 arm null eof"
)
"""What C, C++, their libraries or a compiler's own macros may take for something else."""
_RESERVED = frozenset(_WORDS.split())


def identifier(text: str) -> str:
    """Letters, digits and underscores of the text, beginning with a letter."""
    plain = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")
    if not plain or not plain[0].isalpha():
        plain = f"m_{plain}" if plain else "unnamed"
    return f"{plain}_" if plain.lower() in _RESERVED else plain


def is_identifier(text: str) -> bool:
    """Whether names in C may begin with it."""
    return len(text) <= _LONGEST and identifier(text) == text and text == text.strip("_")


def layer_identifier(layer: str) -> str:
    """Of a layer's name, the end: what comes before tells which part of the model it is in."""
    parts = [part for part in re.split(r"[/:.]+", _own_part(layer)) if part]
    if len(parts) > 1 and _KIND.fullmatch(parts[-1].lower()):
        parts.pop()
    if len(parts) > 1 and parts[0] in ("model", "sequential"):
        del parts[0]
    name = parts.pop() if parts else ""
    while parts and len(name) + len(parts[-1]) < _LONGEST:
        name = f"{parts.pop()}_{name}"
    return identifier(name[-_LONGEST:]).lower()


def _own_part(layer: str) -> str:
    """TFLite joins the names of all that was fused; the layer that has weights says most."""
    parts = [part for part in layer.split(";") if part]
    biased = [part for part in parts if part.endswith("/BiasAdd")]
    return [*biased, *parts[-1:], ""][0]


class Unique:
    """Hands out names, each one once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def name(self, wanted: str) -> str:
        found, number = wanted, 1
        while found in self._taken:
            number += 1
            found = f"{wanted}_{number}"
        self._taken.add(found)
        return found
