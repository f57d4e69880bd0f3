"""Finds the kernels of a model that have choices, and makes programs that compare choices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

from edgekit.backends.offloading import fused_for
from edgekit.backends.plan import selection_of
from edgekit.base.arrays import Array
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.folder import write_tensor
from edgekit.compiler.compile import generated
from edgekit.compiler.macs import shape_of_type
from edgekit.compiler.schedules import candidates
from edgekit.compiler.schedules.apply import CHOICE_ATTRIBUTE, RULE_ATTRIBUTE, schedule_function
from edgekit.compiler.schedules.blocks import blocks_of
from edgekit.compiler.schedules.choices import FAMILIES, Choice, ProductChoice
from edgekit.compiler.schedules.kernels import key_of, problem_of
from edgekit.compiler.schedules.machine import Machine, machine_of
from edgekit.compiler.schedules.packed import Window, convolution, dense, output_size, pack_columns
from edgekit.compiler.schedules.problem import Problem
from edgekit.compiler.schedules.tiles import Tile, choose_tile
from edgekit.compiler.schedules.vector_math import use_vector_math
from edgekit.cross.link import export_objects
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import import_model
from edgekit.tuning.messages import Kernel, Order, Trial, TrialOrder, trial_kernel

_SEED = 0


@dataclass(frozen=True)
class Found:
    """A kernel of a model."""

    function: Any
    problem: Problem | None
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec


class Workshop:
    """Compiles trial programs for one model's kernels."""

    def __init__(self, order: Order) -> None:
        use_vector_math()
        self._target = tvm.target.Target(order.target.as_json())
        self._triple = order.target.triple
        self._machine = machine_of(self._target)
        self._found: dict[str, Found] = {}
        selection = selection_of(order.offload) if order.offload.backends else None
        module = fused_for(import_model(order.source), self._target, offload=selection)
        self.kernels = tuple(self._kernels_of(module))

    def _kernels_of(self, module: Any) -> list[Kernel]:
        """Return the kernels with the most work first."""
        calls: Counter[str] = Counter()
        kernels: dict[str, Kernel] = {}
        for function, call in calls_of(module):
            found = found_in(function, call)
            if found is None:
                continue
            key = key_of(function)
            calls[key] += 1
            if key not in kernels:
                kernel = self._kernel(key, found)
                if kernel is not None:
                    self._found[key] = found
                    kernels[key] = kernel
        counted = [
            Kernel(kernel.key, kernel.words, kernel.work * calls[key], kernel.candidates)
            for key, kernel in kernels.items()
        ]
        return sorted(counted, key=lambda kernel: -kernel.work)

    def _kernel(self, key: str, found: Found) -> Kernel | None:
        scheduled = schedule_function(found.function, self._machine)
        family = str(scheduled.attrs[RULE_ATTRIBUTE])
        blocks = blocks_of(s_tir.Schedule(tvm.IRModule({"main": found.function})))
        if family not in FAMILIES or not blocks:
            return None
        work = sum(block.work for block in blocks) + sum(s.elements for s in found.inputs)
        if found.problem is not None:
            lines, pixels = lines_and_pixels(found.problem)
            choices = candidates.product_candidates(found.problem, lines, pixels, self._machine)
            return Kernel(key, found.problem.words, work, tuple(choices))
        words = f"{family} {'x'.join(map(str, found.output.shape))}"
        if family == "depthwise":
            *_, pixels, channels = found.output.shape
            choices = candidates.depthwise_candidates(channels, pixels, work, self._machine)
        else:
            choices = candidates.generic_candidates(work, self._machine)
        return Kernel(key, words, work, tuple(choices))

    def make(self, order: TrialOrder) -> Trial:
        found = self._found[order.key]
        functions: list[tuple[Any, int | None]] = []
        tried: list[Choice] = []
        for choice in order.choices:
            function, width = self._way(found, choice)
            scheduled = schedule_function(function, self._machine, _if_not_own(choice))
            took = CHOICE_ATTRIBUTE in scheduled.attrs or _if_not_own(choice) is None
            plain = scheduled.without_attr(CHOICE_ATTRIBUTE) if took else scheduled
            if took and not any(tvm_ffi.structural_equal(plain, other) for other, _ in functions):
                functions.append((plain, width))
                tried.append(choice)
        program = _Program(found, functions, self._machine)
        executable = generated(program.module, self._target)
        for number, array in enumerate(program.values):
            write_tensor(order.folder / f"input{number}.npy", array)
        objects = export_objects(executable, self._triple, order.folder)
        return Trial(objects, program.inputs, program.output, tuple(tried))

    def _way(self, found: Found, choice: Choice) -> tuple[Any, int | None]:
        """Return the unscheduled kernel and the width of its packed weights."""
        if found.problem is None:
            return found.function, None
        tile = choice.tile if isinstance(choice, ProductChoice) else None
        tile_of = partial(tile_of_problem, found.problem, tile, self._machine)
        return product_function(found.problem, tile_of)


def _if_not_own(choice: Choice) -> Choice | None:
    return None if choice == type(choice)() else choice


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


def lines_and_pixels(problem: Problem) -> tuple[int, int]:
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
    width = tile_of(*lines_and_pixels(problem)).channels
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


class _Program:
    """Runs one kernel with each choice in turn and compares each result with the first."""

    def __init__(
        self, found: Found, functions: Sequence[tuple[Any, int | None]], machine: Machine
    ) -> None:
        self._builder = relax.BlockBuilder()
        self._machine = machine
        specs, values = _inputs_of(found, [width for _, width in functions])
        self.inputs = tuple(specs)
        self.values: list[Array] = values
        self.output = TensorSpec("differences", "float32", (len(functions),))
        variables = {spec.name: relax.Var(spec.name, _type(spec)) for spec in specs}
        with self._builder.function("main", list(variables.values())):
            with self._builder.dataflow():
                result = self._compared(found, functions, variables)
                self._builder.emit_output(result)
            self._builder.emit_func_output(result)
        self.module = self._builder.get()

    def _compared(
        self,
        found: Found,
        functions: Sequence[tuple[Any, int | None]],
        variables: dict[str, Any],
    ) -> Any:
        common = [variables[spec.name] for spec in self.inputs if spec.name in _COMMON]
        first, far = None, []
        for place, (function, width) in enumerate(functions):
            arguments = list(variables.values())
            if width is not None:
                arguments = [*common, variables[f"weight{width}"]]
            made = self._call(function, trial_kernel(place), arguments, found.output)
            if first is None:
                first = made
            far.append(self._call(far_apart_kernel(found.output), "far", [first, made], _ONE))
        return self._call(_gathered(len(far)), "gathered", far, self.output)

    def _call(self, function: Any, name: str, arguments: list[Any], output: TensorSpec) -> Any:
        if RULE_ATTRIBUTE not in (function.attrs or {}):
            function = schedule_function(function, self._machine)
        variable = self._builder.add_func(function.with_attr("global_symbol", name), name)
        return self._builder.emit(relax.call_tir(variable, arguments, out_ty=_type(output)))


_COMMON = ("data", "bias")
_ONE = TensorSpec("far", "float32", (1,))


def _inputs_of(found: Found, widths: Sequence[int | None]) -> tuple[list[TensorSpec], list[Array]]:
    if found.problem is None:
        values = reference_inputs(found.inputs, _SEED)
        return list(found.inputs), list(values.values())
    shape = found.problem.weight
    plain = TensorSpec("weight", "float32", shape)
    specs = [
        TensorSpec("data", "float32", found.problem.data),
        TensorSpec("bias", "float32", (shape[-1],)),
    ]
    values = reference_inputs([*specs, plain], _SEED)
    weight = np.asarray(values.pop("weight"))
    arrays = list(values.values())
    for width in dict.fromkeys(width for width in widths if width is not None):
        packed = pack_columns(weight, width)
        specs.append(TensorSpec(f"weight{width}", "float32", packed.shape))
        arrays.append(packed)
    return specs, arrays


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


def _gathered(count: int) -> Any:
    parts = [te.placeholder((1,), "float32", f"part{n}") for n in range(count)]

    def element(place: Any) -> Any:
        value = parts[0][0]
        for number, part in enumerate(parts[1:], start=1):
            value = tirx.if_then_else(place == number, part[0], value)
        return value

    return te.create_prim_func([*parts, te.compute((count,), element, name="gathered")])


def _type(spec: TensorSpec) -> Any:
    return relax.TensorType(spec.shape, spec.dtype)


def calls_of(module: Any) -> list[tuple[Any, Any]]:
    """Return every kernel that a model calls, with the call."""
    found = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and value.op == _CALL_TIR:
                found.append((module[value.args[0]], value))
    return found


_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def found_in(function: Any, call: Any) -> Found | None:
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
        return Found(function, problem_of(function), inputs, _spec("output", call.ty))
    except ValueError:
        return None


def _spec(name: str, kind: Any) -> TensorSpec:
    return TensorSpec(name, str(kind.dtype), shape_of_type(kind))
