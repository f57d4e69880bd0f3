"""Bound the whole numbers that a saved program computes while torch loads it.

Torch traces a program with integers of any length: a power of two constants, or repeated squaring,
would keep it busy without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NUMBERS = frozenset(
    {
        *("as_int", "as_float", "as_bool", "as_none", "as_tensor"),
        *("as_sym_int", "as_sym_float", "as_sym_bool"),
    }
)
_ORDINARY_BITS = 64
_MOST_BITS = 4096
_LARGEST_EXPONENT = 99


def check_scalars(graph: Any, unknown: int = _ORDINARY_BITS) -> int:
    """Raise ValueError if a graph's Python operators make numbers too large, or repeat lists and
    texts. Otherwise return the bits of the largest number; `unknown` are the bits of its inputs."""
    bits: dict[str, int] = {}
    largest = unknown
    for node in graph["nodes"]:
        inner = [check_scalars(each, largest) for each in _graphs_in(node["inputs"])]
        operator = node["target"].removeprefix("_operator.")
        arguments = [each["arg"] for each in node["inputs"]]
        sizes = [_bits_of(each, bits, unknown) for each in arguments]
        if operator == node["target"]:
            found = max([_ORDINARY_BITS, *inner, *(sizes if "aten" not in operator else ())])
        elif operator == "getitem":
            found = _ORDINARY_BITS
        else:
            found = _grown(operator, arguments, sizes)
        if found > _MOST_BITS:
            raise ValueError("it computes with numbers that grow too large")
        largest = max(largest, found)
        bits.update((name, found) for name in _names_in(node["outputs"]))
    return largest


def _grown(operator: str, arguments: list[dict[str, Any]], sizes: list[int]) -> int:
    if not all(_NUMBERS.issuperset(argument) for argument in arguments):
        raise ValueError(f"its {operator} takes more than numbers")
    if operator in ("pow", "lshift"):
        amount = arguments[1]
        times: int = abs(amount.get("as_int", 1))
        if not amount.keys() & {"as_int", "as_float"} or times > _LARGEST_EXPONENT:
            raise ValueError(f"its {operator} is of no small constant")
        return sizes[0] * max(times, 1) if operator == "pow" else sizes[0] + times
    return sum(sizes) if operator == "mul" else max(sizes, default=1) + 1


def _bits_of(value: Any, bits: dict[str, int], unknown: int) -> int:
    """Return the bits of the largest number in an argument."""
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return value.bit_length()
    if isinstance(value, list):
        return max((_bits_of(item, bits, unknown) for item in value), default=1)
    if isinstance(value, dict) and "nodes" not in value:
        names = list(_names_in(value))
        named = max((bits.get(name, unknown) for name in names), default=1)
        return max([named, *(_bits_of(item, bits, unknown) for item in value.values())])
    return 1 if isinstance(value, str) else _ORDINARY_BITS


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("as_name", "name") and isinstance(item, str):
                yield item
            else:
                yield from _names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names_in(item)


def _graphs_in(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if "nodes" in value:
            yield value
        else:
            for item in value.values():
                yield from _graphs_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _graphs_in(item)
