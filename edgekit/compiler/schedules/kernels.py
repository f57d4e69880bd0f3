"""Keys that identify a kernel across builds, models and processes."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.s_tir import SBlock

from edgekit.compiler.schedules.choices import EXACTLY
from edgekit.compiler.schedules.problem import NOTE, Problem, read_problem


def problem_of(function: Any) -> Problem | None:
    """Return the problem of a product over packed weights; None for any other kernel."""
    found: list[str] = []

    def look(block: Any) -> None:
        text = block.annotations.get(NOTE)
        if text is not None:
            found.append(str(text))

    tvm_ffi.structural_walk(function.body, (SBlock, look))
    return read_problem(found[0]) if len(found) == 1 else None


def key_of(function: Any) -> str:
    """Return the key of a kernel that has no schedule yet."""
    problem = problem_of(function)
    return _key_by_structure(function) if problem is None else problem.key


def exact_key_of(function: Any) -> str:
    """Return the key; for products it also covers the next steps and the weights' layout."""
    problem = problem_of(function)
    if problem is None:
        return _key_by_structure(function)
    return f"{problem.key}{EXACTLY}{_structure(function):016x}"


def _key_by_structure(function: Any) -> str:
    sides = ".".join(_side(parameter) for parameter in function.params)
    return f"kernel-{_structure(function):016x}-{sides}"[:200]


def _structure(function: Any) -> int:
    number = tvm_ffi.structural_hash(function.without_attr("global_symbol"), map_free_vars=True)
    return int(number) & (1 << 64) - 1


def _side(parameter: Any) -> str:
    """Describe a parameter by its shape: hashes alone are short."""
    shape = getattr(parameter.ty, "shape", ())
    return "x".join(str(getattr(extent, "value", "?")) for extent in shape)
