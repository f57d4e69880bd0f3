"""The functions that compiled code looks up by name at run time, and the libraries with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, StringImm

from edgekit.base.errors import UnsupportedModelError
from edgekit.cross.library_code import INDEX_ERROR
from edgekit.cross.runtime_functions import RUNTIME_FUNCTIONS
from edgekit.cross.weights import WEIGHT_FUNCTION

_PACKED = re.compile(r"^@(\S+) packed_func;$", re.MULTILINE)
_OWN = frozenset({WEIGHT_FUNCTION, INDEX_ERROR})
_CALLS = frozenset({"tirx.tvm_call_packed", "tirx.tvm_call_cpacked"})


def check_functions(module: Any, executable: Any, regions: Iterable[str]) -> None:
    """Refuse a model that calls a function that neither the device nor its own library has.

    `executable` was compiled from `module`. `regions` are functions of backends, which are linked
    into the same library.
    """
    kernels = {
        str((function.attrs or {}).get("global_symbol", variable.name_hint)): function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    found = RUNTIME_FUNCTIONS | _OWN | set(kernels) | set(regions)
    for name in _PACKED.findall(executable.as_text()):
        if name not in found:
            raise _missing("the model", name)
    for kernel, function in kernels.items():
        for name in _called(function.body):
            if name not in found:
                raise _missing(f"the operator {kernel}", name)


def _called(body: Any) -> Iterator[str]:
    names: list[str] = []

    def note(call: Any) -> None:
        if getattr(call.op, "name", "") in _CALLS and isinstance(call.args[0], StringImm):
            names.append(str(call.args[0].value))

    tvm_ffi.structural_walk(body, (Call, note))
    return iter(names)


def _missing(caller: str, name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{caller} calls the function {name}, which no device has: only TVM's full library does",
        hint="report this model, and export it without that operator until then",
    )
