"""Turn operators into loop nests that compute what other runtimes compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from edgekit.compiler.passes.first_places import first_places
from edgekit.compiler.passes.keep_nan import nan_keeping
from edgekit.compiler.passes.keep_zeros import KeepZeros
from edgekit.compiler.passes.sorting import SortInLoops


def legalizing(target: Any, kept: Sequence[str] = ()) -> list[Any]:
    """Return the passes, in order. Operators in `kept` stay operators. GPUs use TVM's own sort: a
    thread per row would be slow."""
    return [
        KeepZeros(),
        *([] if target.kind.name == "cuda" else [SortInLoops()]),
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps({**nan_keeping(), **first_places()}, list(kept)),
    ]
