"""Small functions in LLVM's language that kernels call, which LLVM inlines.

An expression that uses an operand several times can name it with `Let`. But to find the ranges of
names, TVM's code generator for LLVM writes out every name before them, so that the work grows
exponentially where such expressions are nested. An operand of a call is written once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from edgekit.compiler.rewriting import module_pass

_LLVM_FLOATS = {"float16": "half", "float32": "float", "float64": "double"}


class Functions:
    """The functions that one module calls, one of each name."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def call(self, name: str, dtype: str, lines: Sequence[str], *operands: Any) -> Any:
        """Call a function whose parameters are %0, %1 …, and whose last line names its result."""
        name = "_".join(("edgekit", name, *(str(operand.ty) for operand in operands)))
        parameters = ", ".join(llvm_type(str(operand.ty)) for operand in operands)
        head = f"define {llvm_type(dtype)} @{name}({parameters}) {{\nentry:"
        self._texts[name] = "\n".join((head, *lines, "}"))
        return tirx.call_pure_extern(dtype, name, *operands)

    def declare(self, text: str) -> None:
        """Declare a function that others call."""
        self._texts[text] = text

    def defined_in(self, body: Any) -> Any:
        """Return the body of a kernel that defines the functions for its whole module."""
        text = "\n".join(self._texts.values())
        return tirx.AttrStmt("default", "pragma_import_llvm", text, body) if self._texts else body


def on_bodies_with_functions(name: str, rewrite: Callable[[Any, Functions], Any]) -> Any:
    """Return a pass that replaces the body of each kernel by `rewrite(body, functions)`."""

    def transform(module: Any, context: Any) -> Any:
        del context
        functions = Functions()
        kernels = [
            (variable, kernel.with_body(rewrite(kernel.body, functions)))
            for variable, kernel in module.functions_items()
            if isinstance(kernel, tirx.PrimFunc)
        ]
        for number, (variable, kernel) in enumerate(kernels):
            last = number == len(kernels) - 1
            body = functions.defined_in(kernel.body) if last else kernel.body
            module.update_func(variable, kernel.with_body(body))
        return module

    return module_pass(name, transform)


def scalar(dtype: str) -> str:
    return re.sub(r"x\d+$", "", dtype)


def like(dtype: str, kind: str) -> str:
    """Return a scalar type with the lanes of another."""
    return kind + dtype[len(scalar(dtype)) :]


def llvm_type(dtype: str) -> str:
    kind = scalar(dtype)
    lanes = dtype[len(kind) + 1 :]
    name = "i1" if kind == "bool" else _LLVM_FLOATS.get(kind) or f"i{re.sub('[a-z]', '', kind)}"
    return f"<{lanes} x {name}>" if lanes else name


def constant(number: float, dtype: str) -> str:
    """Return a constant of a type, in every lane where the type is a vector."""
    kind = scalar(dtype)
    if kind == "float16":
        with np.errstate(over="ignore"):
            text = f"0xH{np.float16(number).view(np.uint16):04X}"
    elif kind.startswith("float"):
        text = "0x" + struct.pack(">d", number).hex().upper()
    else:
        text = str(int(number))
    lanes = dtype[len(kind) + 1 :]
    element = f"{llvm_type(kind)} {text}"
    return f"<{', '.join([element] * int(lanes))}>" if lanes else text
