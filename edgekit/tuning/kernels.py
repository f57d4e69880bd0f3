"""Finds a model's kernels that no offload took, and the candidates of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
from tvm import relax, s_tir, te, tirx

from edgekit.backends.offloading import fused_for
from edgekit.backends.plan import selection_of
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.loops import times_run
from edgekit.compiler.macs import shape_of_type
from edgekit.compiler.schedules import candidates
from edgekit.compiler.schedules.apply import NO_RULE, RULE_ATTRIBUTE, schedule_function
from edgekit.compiler.schedules.blocks import blocks_of
from edgekit.compiler.schedules.choices import Choice, TraceChoice
from edgekit.compiler.schedules.kernels import exact_key_of, problem_of
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import convolution, dense, output_size
from edgekit.compiler.schedules.problem import Problem, Window
from edgekit.compiler.schedules.tiles import Tile, choose_tile
from edgekit.models.model import import_model
from edgekit.tuning.messages import FindTasks, Subject, Task

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


@dataclass(frozen=True)
class FoundKernel:
    """A kernel of a model."""

    function: Any
    problem: Problem | None
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec


def tasks_of(order: FindTasks, target: Any, machine: Machine) -> list[Task]:
    """Return the tasks with the most work first."""
    selection = selection_of(order.offload) if order.offload.backends else None
    module = fused_for(import_model(order.source), target, offload=selection)
    calls: Counter[str] = Counter()
    tasks: dict[str, Task] = {}
    for function, call, times in calls_of(module):
        found = _kernel_in(function, call)
        for task in () if found is None else _tasks_about(found, machine):
            calls[task.key] += times
            tasks.setdefault(task.key, task)
    counted = [replace(task, calls=calls[task.key]) for task in tasks.values()]
    return sorted(counted, key=lambda task: -task.work * task.calls)


def _tasks_about(found: FoundKernel, machine: Machine) -> list[Task]:
    """Return a kernel's tasks. A product has two: its parameters, and the whole kernel's traces."""
    blocks = blocks_of(s_tir.Schedule(tvm.IRModule({"main": found.function})))
    family = str(schedule_function(found.function, machine).attrs[RULE_ATTRIBUTE])
    if not blocks or family == "scalar":
        return []
    work = sum(block.work for block in blocks) + sum(spec.elements for spec in found.inputs)
    operations = sum(block.work * (2 if block.reduced else 1) for block in blocks)
    subject = Subject(
        key=exact_key_of(found.function),
        words=_words(family, found),
        function=tvm.ir.save_json(found.function.without_attr("global_symbol")),
        problem="",
        inputs=found.inputs,
        output=found.output,
    )
    traced = family != NO_RULE
    if found.problem is None:
        own, *others = _choices(family, found, work, machine)
        return [Task(subject, 0, work, operations, own, tuple(others), traced)]
    problem = found.problem
    about = replace(
        subject,
        key=problem.key,
        words=problem.words,
        function="",
        problem=problem.text,
        inputs=product_inputs(problem),
        output=_result_of(problem, machine),
    )
    lines, pixels = _lines_and_pixels(problem)
    own, *others = candidates.product_candidates(problem, lines, pixels, machine)
    return [
        Task(about, 0, work, operations, own, tuple(others), traced=False),
        Task(subject, 0, work, operations, TraceChoice(), (), traced, problem.key),
    ]


def _words(family: str, found: FoundKernel) -> str:
    if found.problem is not None:
        return f"{found.problem.words}, and what follows"
    return f"{family} {'x'.join(map(str, found.output.shape))}"


def _choices(family: str, found: FoundKernel, work: int, machine: Machine) -> list[Choice]:
    """Return the choices of a kernel, the rule's own first."""
    if family == "depthwise":
        *_, pixels, channels = found.output.shape
        return candidates.depthwise_candidates(channels, pixels, work, machine)
    if family == "generic":
        return candidates.generic_candidates(work, machine)
    return [TraceChoice()]


def _result_of(problem: Problem, machine: Machine) -> TensorSpec:
    function, _ = product_function(problem, partial(tile_of_problem, problem, None, machine))
    return TensorSpec("output", "float32", shape_of_type(function.params[-1].ty))


def calls_of(module: Any) -> list[tuple[Any, Any, int]]:
    """Return every kernel that a model calls, with the call, and how often a loop repeats it."""
    found = []
    for name, times in {"main": 1, **times_run(module)}.items():
        for block in module[name].body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Call) and value.op == _CALL_TIR:
                    found.append((module[value.args[0]], value, times))
    return found


def _kernel_in(function: Any, call: Any) -> FoundKernel | None:
    """Return a kernel, None if it has several results or dynamic shapes."""
    if len(call.args) > 2 or not isinstance(call.ty, relax.TensorType):
        return None
    if relax.analysis.has_reshape_pattern(function):
        return None
    arguments = [(f"input{n}", argument.ty) for n, argument in enumerate(call.args[1].fields)]
    if not all(isinstance(kind, relax.TensorType) for _, kind in arguments):
        return None
    try:
        inputs = tuple(_spec(name, kind) for name, kind in arguments)
        return FoundKernel(function, problem_of(function), inputs, _spec("output", call.ty))
    except ValueError:
        return None


def _spec(name: str, kind: Any) -> TensorSpec:
    return TensorSpec(name, str(kind.dtype), shape_of_type(kind))


def tile_of_problem(
    problem: Problem, tile: Tile | None, machine: Machine, lines: int, pixels: int
) -> Tile:
    """Return the tile that compiler/passes/pack_weights.py packs for."""
    if tile is not None:
        return tile
    *inner, columns = problem.weight
    return choose_tile(
        *(lines, pixels, columns // problem.groups, math.prod(inner), machine),
        whole=problem.groups > 1,
    )


def _lines_and_pixels(problem: Problem) -> tuple[int, int]:
    window = _window(problem)
    if window is None:
        *outer, across, _ = problem.data
        return math.prod(outer), across
    size = problem.data[2:] if problem.channels_first else problem.data[1:3]
    height, width = size
    rows, columns, *_ = problem.weight
    lines, pixels = output_size((height, width), (rows, columns), window)
    return (1, lines) if pixels == 1 else (lines, pixels)


def _window(problem: Problem) -> Window | None:
    if (
        problem.strides is None
        or problem.padding is None
        or problem.dilation is None
        or problem.spread is None
    ):
        return None
    return Window(
        problem.strides,
        problem.padding,
        problem.dilation,
        problem.spread,
        problem.channels_first,
    )


def product_function(problem: Problem, tile_of: Callable[[int, int], Tile]) -> tuple[Any, int]:
    """Return a product with a bias and a ReLU, which stand for what follows it in a model."""
    *inner, columns = problem.weight
    width = tile_of(*_lines_and_pixels(problem)).channels
    data = te.placeholder(problem.data, "float32", "data")
    weight = te.placeholder((-(-columns // width), *inner, width), "float32", "weight")
    bias = te.placeholder((columns,), "float32", "bias")
    window = _window(problem)
    if window is None:
        product = dense(data, weight, columns, tile_of)
    else:
        product = convolution(data, weight, window, problem.groups, columns, tile_of)
    zero = tirx.const(0, "float32")
    added = te.compute(product.shape, lambda *i: product[i] + bias[i[-1]], name="added")
    result = te.compute(product.shape, lambda *i: tirx.max(added[i], zero), name="result")
    return te.create_prim_func([data, bias, weight, result]), width


def product_inputs(problem: Problem) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("data", "float32", problem.data),
        TensorSpec("bias", "float32", problem.weight[-1:]),
    )
