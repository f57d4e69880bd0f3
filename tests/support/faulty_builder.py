"""A builder of candidates that has faults, as compilers and the code that they make have them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.compiler.schedules.choices import ProductChoice
from edgekit.tuning.builder import Workbench, main
from edgekit.tuning.messages import OWN, BatchOrder, BuiltBatch

FATAL = ProductChoice(unrolled=2)
"""The choice that ends the compiler; with FAULT "run" it ends the process that runs it, and with
"timeout" it creates the file that HANGS names and never returns."""
FAULT, HANGS = "EDGEKIT_TEST_FAULT", "EDGEKIT_TEST_HANGS"


class FaultyWorkbench(Workbench):
    _deadly = ""

    def make(self, order: BatchOrder) -> BuiltBatch:
        self._deadly = ""
        if FATAL in order.choices:
            if os.environ[FAULT] == "compile":
                os.kill(os.getpid(), signal.SIGSEGV)
            self._deadly = f"{OWN}_{order.choices.index(FATAL)}"
        return super().make(order)

    def linked(self, functions: dict[str, Any], folder: Path) -> Path:
        if self._deadly in functions:
            if os.environ[FAULT] == "timeout":
                calls = [("creat", os.environ[HANGS], 0o600), ("sleep", 3600)]
            else:
                calls = [("abort",)]
            functions[self._deadly] = calling(functions[self._deadly], calls)
        return super().linked(functions, folder)


def calling(function: Any, calls: Sequence[tuple[str | int, ...]]) -> Any:
    """Return the function with calls of C before its body."""
    from tvm import s_tir, tirx

    realize = function.body
    root = realize.block
    faults = [tirx.Evaluate(tirx.call_extern("int32", *call)) for call in calls]
    block = s_tir.SBlock(
        *(root.iter_vars, root.reads, root.writes, root.name_hint),
        body=tirx.SeqStmt([*faults, root.body]),
        alloc_buffers=root.alloc_buffers,
        annotations=root.annotations,
    )
    return function.with_body(s_tir.SBlockRealize(realize.iter_values, realize.predicate, block))


if __name__ == "__main__":
    main(FaultyWorkbench)
