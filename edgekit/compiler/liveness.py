"""The least memory that a model's activations need: the most bytes alive at the same time.

Computed after fusion, where each binding is a kernel that reads its arguments and writes its result
into memory of its own. A reshape shares its argument's memory. Inputs count until their last use,
outputs to the end. A kernel that works element by element may write its result over an argument
that it reads for the last time. Weights and a kernel's own scratch memory don't count. No plan that
keeps this order of kernels needs less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from itertools import accumulate, chain
from typing import Any

from tvm import relax

from edgekit.compiler.macs import shape_of_type
from edgekit.compiler.passes.in_place import pointwise


def peak_activation_bytes(module: Any) -> int:
    """Return the peak of a Relax module after fusion: a straight-line `main` with known shapes."""
    main = module["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    # The variable whose memory holds each variable's value.
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

    gone = {variable: last_read.get(variable, index) + 1 for variable, index in born.items()}
    for index, binding in enumerate(bindings):
        dying = {v for v, end in gone.items() if end == index + 1} - set(main.params)
        if dying and born.get(binding.var) == index and binding.var not in outputs:
            overwritten = _overwritten(binding.value, module, owners, dying)
            if overwritten is not None:
                gone[overwritten] = index
    change = [0] * (len(bindings) + 2)
    for variable, index in born.items():
        size = _bytes_of(variable.ty)
        change[index] += size
        change[gone[variable]] -= size
    return max(accumulate(change))


def _overwritten(
    value: Any, module: Any, owners: Mapping[Any, frozenset[Any]], dying: Set[Any]
) -> Any | None:
    """Return the argument that a kernel may overwrite: one without later readers."""
    if not _is_kernel(value):
        return None
    arguments = value.args[1].fields
    reads = [_owners_of(argument, owners) for argument in arguments]
    places = [
        place
        for place, read in enumerate(reads)
        if len(read) == 1 and read <= dying and sum(bool(read & other) for other in reads) == 1
    ]
    allowed = pointwise(module[value.args[0]]) if places else frozenset()
    return next((owner for place in places if place in allowed for owner in reads[place]), None)


def _owners_of(expression: Any, owners: Mapping[Any, frozenset[Any]]) -> frozenset[Any]:
    reads = relax.analysis.free_vars(expression)
    return frozenset(chain.from_iterable(owners[variable] for variable in reads))


def _shares_memory(value: Any, module: Any) -> bool:
    if _is_kernel(value):
        return bool(relax.analysis.has_reshape_pattern(module[value.args[0]]))
    return isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem))


def _is_kernel(value: Any) -> bool:
    return isinstance(value, relax.Call) and str(getattr(value.op, "name", "")) == "relax.call_tir"


def _bytes_of(kind: Any) -> int:
    if isinstance(kind, relax.TupleType):
        return sum(_bytes_of(field) for field in kind.fields)
    if isinstance(kind, relax.TensorType):
        width = re.search(r"[0-9]+", str(kind.dtype))
        bits = int(width[0]) if width else 8  # bool
        return -(-math.prod(shape_of_type(kind)) * bits // 8)
    return 0
