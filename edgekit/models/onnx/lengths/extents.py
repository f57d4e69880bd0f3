"""Sizes of dimensions as polynomials over lengths, with floor division, maximum and minimum.

A size is an int, or an `Extent` if it depends on a length. Where the lengths have few values
together, what is asked of a size (its bounds, whether it equals another) is computed for all of
them, so that no rule of algebra is needed; else the answer is by intervals, and may be None.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from edgekit.base.arrays import Array

LARGEST_DOMAIN = 1 << 20
"""The most combinations of lengths for which sizes are computed one by one."""


@dataclass(frozen=True)
class Length:
    """A size that is known when the program runs: of an input, or counted by an operator."""

    name: str
    smallest: int
    largest: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Composed:
    """A size that is no polynomial of others."""

    operator: Literal["//", "max", "min"]
    first: Size
    second: Size

    def __str__(self) -> str:
        if self.operator == "//":
            return f"({self.first})//({self.second})"
        return f"{self.operator}({self.first}, {self.second})"


Atom: TypeAlias = "Length | Composed"
Term: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True)
class Extent:
    """A sum of products: each term's factors, in order, and its coefficient."""

    terms: tuple[tuple[Term, int], ...]

    def __add__(self, other: Size) -> Size:
        found = dict(self.terms)
        for term, factor in _terms(other).items():
            found[term] = found.get(term, 0) + factor
        return _sum(found)

    def __mul__(self, other: Size) -> Size:
        found: dict[Term, int] = {}
        for mine, factor in self.terms:
            for others, times in _terms(other).items():
                term = tuple(sorted(mine + others, key=str))
                found[term] = found.get(term, 0) + factor * times
        return _sum(found)

    def __sub__(self, other: Size) -> Size:
        return self + -1 * other

    def __rsub__(self, other: Size) -> Size:
        return -1 * self + other

    def __neg__(self) -> Size:
        return -1 * self

    def __floordiv__(self, other: Size) -> Size:
        return divided(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return divided(other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        parts = []
        for term, factor in self.terms:
            words = [str(factor)] if factor != 1 or not term else []
            parts.append("*".join([*words, *map(str, term)]))
        return " + ".join(parts).replace("+ -", "- ")


Size: TypeAlias = "int | Extent"


def of_length(length: Length) -> Size:
    """Return a length as a size."""
    if length.smallest == length.largest:
        return length.smallest
    return Extent((((length,), 1),))


def divided(first: Size, second: Size) -> Size:
    """Return the quotient rounded down; the divisor is positive."""
    if isinstance(first, int) and isinstance(second, int):
        return first // second
    divisor = _terms(second)
    whole: dict[Term, int] = {}
    rest: dict[Term, int] = {}
    if len(divisor) == 1:
        ((below, factor),) = divisor.items()
        for term, times in _terms(first).items():
            left = _without(term, below)
            if left is None or (times % factor and left):
                rest[term] = times
                continue
            # A constant divides with a rest, which stays.
            whole[left] = whole.get(left, 0) + times // factor
            if times % factor:
                rest[term] = times % factor
    else:
        rest = _terms(first)
    left_over = _sum(rest)
    if isinstance(left_over, int) and isinstance(second, int):
        return _sum(whole) + left_over // second
    if left_over == second:
        return _sum(whole) + 1
    low, high = bounds(left_over)
    if low >= 0 and high < bounds(second)[0]:
        return _sum(whole)
    return _sum(whole) + Extent((((Composed("//", left_over, second),), 1),))


def larger(first: Size, second: Size) -> Size:
    return _chosen("max", first, second)


def smaller(first: Size, second: Size) -> Size:
    return _chosen("min", first, second)


def product(sizes: Iterable[Size]) -> Size:
    return math.prod(sizes, start=1)


def lengths_of(size: Size) -> frozenset[Length]:
    """Return the lengths on which a size depends."""
    if isinstance(size, int):
        return frozenset()
    found: set[Length] = set()
    for atom in (atom for term, _ in size.terms for atom in term):
        if isinstance(atom, Length):
            found.add(atom)
        else:
            found |= lengths_of(atom.first) | lengths_of(atom.second)
    return frozenset(found)


def largest(size: Size) -> int:
    return bounds(size)[1]


def smallest(size: Size) -> int:
    return bounds(size)[0]


@functools.lru_cache(maxsize=1 << 16)
def bounds(size: Size) -> tuple[int, int]:
    """Return the smallest and the largest value; exact if the lengths have few values together."""
    if isinstance(size, int):
        return size, size
    domain = _domain(lengths_of(size))
    if domain is not None:
        values = _computed(size, domain)
        return int(values.min()), int(values.max())
    low = high = 0
    for term, factor in size.terms:
        corners = [factor]
        for atom in term:
            corners = [corner * bound for corner in corners for bound in _atom_bounds(atom)]
            corners = [min(corners), max(corners)]
        low, high = low + min(corners), high + max(corners)
    return low, high


def same(first: Size, second: Size) -> bool:
    """Tell whether two sizes are always equal; False also if that can't be shown."""
    return first == second or bounds(first - second) == (0, 0)


def decided(operator: Literal["<", "<=", "=="], first: Size, second: Size) -> bool | None:
    """Compare two sizes; None if it depends on the lengths."""
    low, high = bounds(first - second)
    if operator == "==":
        return True if (low, high) == (0, 0) else None if low <= 0 <= high else False
    if operator == "<":
        return True if high < 0 else False if low >= 0 else None
    return True if high <= 0 else False if low > 0 else None


def _terms(size: Size) -> dict[Term, int]:
    return {(): size} if isinstance(size, int) else dict(size.terms)


def _sum(terms: Mapping[Term, int]) -> Size:
    left = {term: factor for term, factor in terms.items() if factor}
    if not left.keys() - {()}:
        return left.get((), 0)
    return Extent(tuple(sorted(left.items(), key=lambda item: (-len(item[0]), str(item[0])))))


def _without(term: Term, factors: Term) -> Term | None:
    left = list(term)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _chosen(operator: Literal["max", "min"], first: Size, second: Size) -> Size:
    order = decided("<=", first, second)
    if order is None and decided("<=", second, first):
        order = False
    if order is not None:
        return second if order == (operator == "max") else first
    first, second = sorted((first, second), key=str)
    return Extent((((Composed(operator, first, second),), 1),))


def _domain(lengths: frozenset[Length]) -> Mapping[Length, Array] | None:
    """Return all combinations of the lengths' values, as arrays that broadcast."""
    counts = [one.largest - one.smallest + 1 for one in lengths]
    if math.prod(counts) > LARGEST_DOMAIN:
        return None
    ordered = sorted(lengths, key=str)
    ranges = [np.arange(one.smallest, one.largest + 1, dtype=np.int64) for one in ordered]
    return dict(zip(ordered, np.ix_(*ranges), strict=True))


def _computed(size: Size, values: Mapping[Length, Array]) -> Array:
    if isinstance(size, int):
        return np.asarray(size, np.int64)
    total: Array = np.asarray(0, np.int64)
    for term, factor in size.terms:
        part: Array = np.asarray(factor, np.int64)
        for atom in term:
            part = part * (values[atom] if isinstance(atom, Length) else _composed(atom, values))
        total = total + part
    return total


def _composed(atom: Composed, values: Mapping[Length, Array]) -> Array:
    first, second = _computed(atom.first, values), _computed(atom.second, values)
    result: Array
    if atom.operator == "//":
        # The floor of a division by zero is taken for lengths that the graph excludes.
        result = np.floor_divide(first, np.where(second == 0, 1, second))
    else:
        result = (np.maximum if atom.operator == "max" else np.minimum)(first, second)
    return result


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Length):
        return atom.smallest, atom.largest
    (low, high), (least, most) = bounds(atom.first), bounds(atom.second)
    if atom.operator == "//":
        least, most = max(least, 1), max(most, 1)
        corners = [a // b for a in (low, high) for b in (least, most)]
        return min(corners), max(corners)
    choose = max if atom.operator == "max" else min
    return choose(low, least), choose(high, most)
