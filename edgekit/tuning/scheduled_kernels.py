"""Applies a choice's schedule to a kernel of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from edgekit.base.arrays import Array
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.apply import CHOICE_ATTRIBUTE, schedule_function
from edgekit.compiler.schedules.choices import Choice, ProductChoice
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import pack_columns
from edgekit.compiler.schedules.problem import read_problem
from edgekit.models.inputs import reference_inputs
from edgekit.tuning.kernels import product_function, product_inputs, tile_of_problem
from edgekit.tuning.messages import Subject

_SEED = 0
_SPOILT = 77
"""A value that no kernel writes everywhere."""


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel with its schedule."""

    function: Any
    arguments: tuple[str, ...]
    """Names of its inputs."""


class NotPossible(Exception):
    """The choice does not fit this kernel."""


def scheduled(subject: Subject, choice: Choice | None, machine: Machine) -> ScheduledKernel:
    """Schedule a kernel by a choice; None is the rule's own."""
    function, arguments = _unscheduled(subject, choice, machine)
    try:
        made = schedule_function(function, machine, choice)
    except RuntimeError as error:
        raise NotPossible(str(error).strip().splitlines()[-1][:300]) from error
    if choice is None:
        return ScheduledKernel(made, arguments)
    if CHOICE_ATTRIBUTE not in made.attrs:
        raise NotPossible("the kernel can't be computed that way")
    return ScheduledKernel(made.without_attr(CHOICE_ATTRIBUTE), arguments)


def _unscheduled(
    subject: Subject, choice: Choice | None, machine: Machine
) -> tuple[Any, tuple[str, ...]]:
    if not subject.problem:
        names = tuple(spec.name for spec in subject.inputs)
        return tvm.ir.load_json(subject.function), names
    problem = read_problem(subject.problem)
    tile = choice.tile if isinstance(choice, ProductChoice) else None
    function, width = product_function(problem, partial(tile_of_problem, problem, tile, machine))
    return function, ("data", "bias", f"weight{width}")


def values_of(subject: Subject, names: set[str]) -> Iterator[tuple[str, Array]]:
    """Yield the values of the named inputs."""
    if not subject.problem:
        wanted = [spec for spec in subject.inputs if spec.name in names]
        yield from reference_inputs(wanted, _SEED).items()
        return
    problem = read_problem(subject.problem)
    plain = TensorSpec("weight", "float32", problem.weight)
    values = reference_inputs([*product_inputs(problem), plain], _SEED)
    weight = np.asarray(values.pop("weight"))
    for name in sorted(names):
        if name in values:
            yield name, values[name]
        else:
            yield name, pack_columns(weight, int(name.removeprefix("weight")))


def spoiling_kernel(spec: TensorSpec) -> Any:
    """Return a kernel that fills an output with a value no kernel writes."""
    value = tirx.const(1, spec.dtype) if spec.dtype == "bool" else tirx.const(_SPOILT, spec.dtype)
    return te.create_prim_func([te.compute(spec.shape, lambda *_: value, name="spoilt")])


def far_apart_kernel(spec: TensorSpec) -> Any:
    """Return a kernel for the sum of squared differences over the sum of squares."""
    first, second = (te.placeholder(spec.shape, spec.dtype, name) for name in ("first", "second"))

    def summed(element: Callable[..., Any], name: str) -> Any:
        axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(spec.shape)]
        if not axes:
            return te.compute((1,), lambda _: element(), name=name)
        return te.compute((1,), lambda _: te.sum(element(*axes), axis=axes), name=name)

    def number(tensor: Any, index: Sequence[Any]) -> Any:
        return tirx.Cast("float32", tensor[tuple(index)])

    def difference(*index: Any) -> Any:
        between = number(first, index) - number(second, index)
        return between * between

    def square(*index: Any) -> Any:
        return number(first, index) * number(first, index)

    apart, size = summed(difference, "apart"), summed(square, "size")
    tiny = tirx.const(1e-30, "float32")
    far = te.compute((1,), lambda i: apart[i] / tirx.max(size[i], tiny), name="far")
    return te.create_prim_func([first, second, far])
