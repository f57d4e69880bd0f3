"""Integer kernels compiled for this machine and run step by step, each with memory of its own."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.aot.c_text import C_TYPES, values_text
from edgekit.aot.generators import PORTABLE
from edgekit.aot.kernel import Kernel
from edgekit.aot.operators import Operator
from edgekit.aot.program import Step
from edgekit.aot.quantised.recognised import Recognised
from edgekit.aot.quantised.rewrite import recognise
from edgekit.aot.write_source import needed_helpers
from edgekit.profiles.board import load_board

GUARD = 64
"""Bytes around every buffer that no kernel may touch."""
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


@dataclass(frozen=True)
class Compiled:
    library: ctypes.CDLL
    kernels: tuple[Kernel, ...]


def offered(operator: Operator, number: int = 0, generator: Any = None) -> Kernel:
    step = Step(f"step{number}", operator, (0,), (1,), ("layer",))
    offer = (generator or PORTABLE).offer(step, load_board("local").cpu)
    assert isinstance(offer, Kernel), offer
    return offer


def c_file(kernels: Sequence[Kernel]) -> str:
    """All in one file, each with a door that ctypes can call."""
    lines = ["#include <stdint.h>", "#include <string.h>"]
    lines += ["#ifdef __cplusplus", "#define restrict __restrict", "#endif"]
    lines += [f"#include <{header}>" for kernel in kernels for header in kernel.headers]
    lines += needed_helpers(kernels)
    for number, kernel in enumerate(kernels):
        for constant in kernel.constants:
            kind = C_TYPES[str(constant.array.dtype)]
            name = f"step{number}_{constant.name}"
            lines.append(f"static const {kind} {name}[{constant.array.size}] = {{")
            lines += [*values_text(constant.array), "};"]
        lines.append(kernel.source)
        count = kernel.source.split("{")[0].rpartition("(")[2].count(",") + 1
        arguments = ", ".join(f"void *a{place}" for place in range(count))
        casts = _casts(kernel.source)
        passed = ", ".join(f"({cast})a{place}" for place, cast in enumerate(casts))
        lines += [
            '#ifdef __cplusplus\nextern "C"\n#endif',
            f"void call{number}({arguments});",
            f"void call{number}({arguments}) {{ step{number}({passed}); }}",
        ]
    return "\n".join(lines) + "\n"


def _casts(source: str) -> list[str]:
    head = source.split("*/", 1)[1].split("{")[0]
    parameters = head.partition("(")[2].rpartition(")")[0].split(",")
    return [part.replace("restrict", "").rpartition("*")[0].strip() + " *" for part in parameters]


def compiled(kernels: Sequence[Kernel], folder: Path, flags: Sequence[str] = ("-O1",)) -> Compiled:
    text = c_file(kernels)
    name = hashlib.sha256(f"{flags} {text}".encode()).hexdigest()[:16]
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    command = ["gcc", "-std=c99", *WARNINGS, *flags, "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)
    return Compiled(ctypes.CDLL(str(library)), tuple(kernels))


def run_step(
    code: Compiled, number: int, inputs: Sequence[np.ndarray], shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    """One step; its buffers lie between guards, and in place gives the same where that is said."""
    kernel = code.kernels[number]
    function = code.library[f"call{number}"]
    apart = _run(function, kernel, inputs, shape, dtype, None)
    for place, _ in kernel.in_place:
        assert (_run(function, kernel, inputs, shape, dtype, place) == apart).all()
    return apart


def _run(
    function: Any,
    kernel: Kernel,
    inputs: Sequence[np.ndarray],
    shape: tuple[int, ...],
    dtype: str,
    in_place: int | None,
) -> np.ndarray:
    buffers = [_guarded(value) for value in inputs]
    empty = np.full(shape, 85, dtype)
    result = _guarded(empty) if in_place is None else buffers[in_place]
    scratch = _guarded(np.full(kernel.scratch, 85, "int8"))
    used = [*buffers, result] + ([scratch] if kernel.scratch else [])
    function(*(ctypes.c_void_p(buffer.ctypes.data + GUARD) for buffer in used))
    for buffer in used:
        assert (buffer[:GUARD] == 85).all() and (buffer[-GUARD:] == 85).all()
    return result[GUARD:][: empty.nbytes].view(dtype).reshape(shape).copy()


def _guarded(value: np.ndarray) -> np.ndarray:
    guard = np.full(GUARD, 85, "uint8")
    return np.concatenate([guard, np.frombuffer(value.tobytes(), "uint8"), guard])


def run_module(
    recognised: Recognised,
    feeds: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    folder: Path,
    generator: Any = None,
    flags: Sequence[str] = ("-O1",),
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """The outputs of a recognised module, and what each of its steps gave."""
    from tvm import relax

    from edgekit.aot.quantised.rewrite import step_number
    from edgekit.base.tvm_compat import constant_array
    from edgekit.compiler.macs import shape_of

    order = sorted(recognised.operators)
    kernels = [
        offered(recognised.operators[number], place, generator)
        for place, number in enumerate(order)
    ]
    code = compiled(kernels, folder, flags)
    main = recognised.module["main"]
    given = feeds.values() if isinstance(feeds, Mapping) else feeds
    values: dict[Any, Any] = dict(zip(main.params, given, strict=True))
    steps: dict[int, np.ndarray] = {}

    def evaluate(expression: Any) -> Any:
        array = constant_array(expression)
        if array is not None:
            return array
        if isinstance(expression, relax.Var):
            return values[expression]
        if isinstance(expression, relax.Tuple):
            return [evaluate(field) for field in expression.fields]
        number = step_number(expression)
        if number is not None:
            inputs = [evaluate(argument) for argument in expression.args[1].fields]
            kind = expression.ty
            shape = tuple(int(extent) for extent in kind.shape)
            steps[number] = run_step(code, order.index(number), inputs, shape, str(kind.dtype))
            return steps[number]
        arguments = [evaluate(a) for a in expression.args if not isinstance(a, relax.ShapeExpr)]
        return _MOVES[str(expression.op.name)](arguments, expression, shape_of(expression))

    for block in main.body.blocks:
        for binding in block.bindings:
            values[binding.var] = evaluate(binding.value)
    result = evaluate(main.body.body)
    return (result if isinstance(result, list) else [result]), steps


_MOVES: dict[str, Any] = {
    "relax.reshape": lambda a, call, shape: a[0].reshape(shape),
    "relax.permute_dims": lambda a, call, shape: np.ascontiguousarray(
        np.transpose(a[0], [int(axis) for axis in call.attrs.axes])
    ),
    "relax.astype": lambda a, call, shape: a[0].astype(str(call.attrs.dtype)),
    "relax.add": lambda a, call, shape: a[0] + a[1],
}


def recognised_file(path: Path) -> Recognised:
    from edgekit.models.model import import_model, open_model

    return recognise(import_model(open_model(path)).module)
