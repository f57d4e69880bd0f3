"""Take large constants out of the module, so that they can stay in the library's file.

TVM's virtual machine carries constants inside its bytecode: the build serialises them, and a start
copies every one of them into memory of its own. A weight that is taken out is fetched by its number
with a call of `WEIGHT_FUNCTION`, which returns a view of the library's read-only data
(cross/weights.py). The view is no TVM object that could be passed on or written to: only constants
that kernels read, and nothing else uses, are taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from edgekit.base.tvm_compat import constant_array
from edgekit.cross.weights import LEAST_BYTES, WEIGHT_FUNCTION, Weight


def map_weights(module: Any) -> tuple[Any, tuple[Weight, ...]]:
    """Return the module without its large constants, and each of those once, by number.

    Call it on a module whose memory is planned, last before code generation.
    """
    readers = {
        variable: _only_read(function)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    mapper = _Mapper(module, readers)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mapper.builder_.update_func(variable, mapper.visit_expr(function))
    return mapper.builder_.get(), tuple(mapper.weights)


@relax.expr_functor.mutator
class _Mapper(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, readers: Mapping[Any, frozenset[int]]) -> None:
        super().__init__(module)
        self.weights: dict[Weight, int] = {}
        self._readers = readers

    def visit_call_(self, call: Any) -> Any:
        read = self._readers.get(call.op, frozenset())
        arguments = [
            self._mapped(argument) if place in read else argument
            for place, argument in enumerate(call.args)
        ]
        if all(new.same_as(old) for new, old in zip(arguments, call.args, strict=True)):
            return call
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _mapped(self, argument: Any) -> Any:
        array = constant_array(argument)
        if array is None or array.nbytes < LEAST_BYTES:
            return argument
        kind = tvm.DataType(str(argument.ty.dtype))
        weight = Weight(
            int(kind.type_code), int(kind.bits), int(kind.lanes), array.shape, array.tobytes()
        )
        number = self.weights.setdefault(weight, len(self.weights))
        ask = relax.Call(
            relax.ExternFunc(WEIGHT_FUNCTION), [relax.prim_value(number)], ty_args=[argument.ty]
        )
        return self.builder_.emit(ask)


def _only_read(kernel: Any) -> frozenset[int]:
    """Return the places of the parameters that the kernel only loads from."""
    if not isinstance(kernel.body, s_tir.SBlockRealize):
        return frozenset()  # not a plain loop nest: assume any use
    buffers = {place: var for place, var in enumerate(kernel.params) if hasattr(var.ty, "shape")}
    _, written, opaque = s_tir.analysis.get_sblock_access_region(
        kernel.body.block, {buffer: buffer for buffer in buffers.values()}
    )
    touched = [region.source for region in (*written, *opaque)]
    return frozenset(
        place
        for place, buffer in buffers.items()
        if not any(buffer.same_as(other) for other in touched)
    )
