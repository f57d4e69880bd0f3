"""Calls of PyTorch's operators, from the samples that PyTorch tests itself with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

TYPES = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
)
SAMPLES = {torch.float32: 3}
"""The most samples of a type; one of any other type."""
_LARGEST = 20_000
_SEARCHED = 60
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"} | {
    "new_empty_strided"
}
"""Operators whose results have no defined values."""
_ANY_PLACE = {"kthvalue", "median", "nanmedian", "mode", "topk"}
"""Operators that return a value and a place of it: any where several elements are equal."""
_STABLE = {"argsort", "sort"}
"""Operators whose places are any where several elements are equal, unless they are asked for the
first."""


@dataclass(frozen=True)
class Call:
    """One call of an operator: what varies, and what stands in the program."""

    name: str
    function: Callable[..., Any] = field(compare=False)
    tensors: tuple[torch.Tensor, ...] = field(compare=False)
    leaves: tuple[Any, ...] = field(compare=False)
    structure: Any = field(compare=False)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the tensors among the results; complex ones as pairs of real numbers."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        arguments, options = pytree.tree_unflatten(leaves, self.structure)
        results = pytree.tree_leaves(self.function(*arguments, **options))
        found = [x for x in results if isinstance(x, torch.Tensor)]
        if self.name.partition("-")[0] in _ANY_PLACE:
            found = found[:1]
        return tuple(torch.view_as_real(x) if x.is_complex() else x for x in found)


class Program(torch.nn.Module):
    """Several calls as one program."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results: list[torch.Tensor] = []
        place = 0
        for call in self.calls:
            results += call(tensors[place : place + len(call.tensors)])
            place += len(call.tensors)
        return tuple(results)


def operators() -> dict[str, Any]:
    """Return every operator and variant that PyTorch's own tests know."""
    return {
        f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db
    }


def calls(name: str, op: Any, only: str = "") -> Iterator[Call]:
    """Make small calls in every type that the operator takes, or one of `only` one type."""
    supported = op.supported_dtypes("cpu")
    for dtype in [getattr(torch, only)] if only else TYPES:
        if dtype not in supported:
            continue
        possible = list(_possible(name, op, dtype))
        ranked = [x for x in possible if any(t.ndim for t in x.tensors)] or possible
        most = 1 if only else SAMPLES.get(dtype, 1)
        places = sorted({k * (len(ranked) - 1) // max(most - 1, 1) for k in range(most)})
        for number, place in enumerate(places if ranked else []):
            call = ranked[place]
            kind = str(dtype).removeprefix("torch.")
            suffix = f"-{number}" if number else ""
            yield Call(
                f"{name}-{kind}{suffix}", call.function, call.tensors, call.leaves, call.structure
            )


def _possible(name: str, op: Any, dtype: torch.dtype) -> Iterator[Call]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            samples = list(islice(op.sample_inputs("cpu", dtype), _SEARCHED))
        except Exception:  # noqa: BLE001 -- some samples cannot be made on this host
            return
        for sample in samples:
            arguments = ((sample.input, *sample.args), sample.kwargs)
            leaves, structure = pytree.tree_flatten(arguments)
            found = [x for x in leaves if isinstance(x, torch.Tensor)]
            if not all(x.layout == torch.strided and not x.is_complex() for x in found):
                continue
            if name in _STABLE and not sample.kwargs.get("stable"):
                continue
            tensors = tuple(x.detach().contiguous().clone() for x in found)
            if not 0 < sum(x.numel() for x in tensors) <= _LARGEST:
                continue
            if min(x.numel() for x in tensors) == 0:
                continue
            call = Call(name, op.op, tensors, tuple(leaves), structure)
            try:
                results = call([x.clone() for x in tensors])
            except Exception:  # noqa: BLE001 -- PyTorch has no kernel for it
                continue
            if results and min(x.numel() for x in results) > 0:
                yield call
