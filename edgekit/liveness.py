"""The memory that a model's activations need at least: the most bytes alive at the same time.

Looked at after fusion, where each binding is a kernel that reads its arguments and writes its
result into memory of its own; a reshape shares its argument's. Inputs count until their last
use, outputs to the end. Weights and a kernel's own scratch memory don't count, and no plan that
keeps this order of kernels can do with less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import accumulate, chain
from typing import Any

from tvm import relax

from edgekit.macs import shape_of_type


def peak_activation_bytes(module: Any) -> int:
    """Of a Relax module after fusion: one `main`, a straight line, every shape known."""
    main = module["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    # Whose memory a variable's value lies in.
    owners = {variable: frozenset([variable]) for variable in main.params}
    born = dict.fromkeys(main.params, 0)
    last_read: dict[Any, int] = {}
    for index, binding in enumerate(bindings):
        reads = _owners_of(binding.value, owners)
        last_read.update(dict.fromkeys(reads, index))
        if _shares_memory(binding.value, module):
            owners[binding.var] = reads
        else:
            owners[binding.var] = frozenset([binding.var])
            born[binding.var] = index
    outputs = _owners_of(main.body.body, owners)
    last_read.update(dict.fromkeys(outputs, len(bindings)))

    change = [0] * (len(bindings) + 2)
    for variable, index in born.items():
        size = _bytes_of(variable.ty)
        change[index] += size
        change[last_read.get(variable, index) + 1] -= size
    return max(accumulate(change))


def _owners_of(expression: Any, owners: Mapping[Any, frozenset[Any]]) -> frozenset[Any]:
    reads = relax.analysis.free_vars(expression)
    return frozenset(chain.from_iterable(owners[variable] for variable in reads))


def _shares_memory(value: Any, module: Any) -> bool:
    if isinstance(value, relax.Call) and str(getattr(value.op, "name", "")) == "relax.call_tir":
        return bool(relax.analysis.has_reshape_pattern(module[value.args[0]]))
    return isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem))


def _bytes_of(kind: Any) -> int:
    if isinstance(kind, relax.TupleType):
        return sum(_bytes_of(field) for field in kind.fields)
    if isinstance(kind, relax.TensorType):
        width = re.search(r"[0-9]+", str(kind.dtype))
        bits = int(width[0]) if width else 8  # bool
        return -(-math.prod(shape_of_type(kind)) * bits // 8)
    return 0
