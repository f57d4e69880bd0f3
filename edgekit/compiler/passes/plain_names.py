"""Give tensors names that C accepts: models use names such as `/fpn/Resize_1`, and the code that
TVM prints for a GPU names buffers after them."""

from __future__ import annotations

import re
from typing import Any

from tvm import relax

from edgekit.compiler.rewriting import rewriting


@relax.expr_functor.mutator
class _PlainNames(relax.PyExprMutator):  # type: ignore[misc]
    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        name = plain_name(str(binding.var.name))
        is_inside = isinstance(binding.var, relax.DataflowVar)
        emit = self.builder_.emit if is_inside else self._emit_result
        self.set_var_remap(binding.var, emit(value, name))

    def _emit_result(self, value: Any, name: str) -> Any:
        if self.builder_.current_block_is_dataflow():
            return self.builder_.emit_output(value, name)
        return self.builder_.emit(value, name)


def plain_name(name: str) -> str:
    return re.sub(r"^(?=[0-9])|\W", "_", name, flags=re.ASCII)


def plain_names() -> Any:
    return rewriting("PlainNames", _PlainNames)
