"""A builder of candidates that has faults, as compilers and the code that they make have them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.schedules.choices import ProductChoice
from edgekit.tuning.builder import Workbench, serve
from edgekit.tuning.child_side import Channel
from edgekit.tuning.work import OWN, BatchOrder, BuiltBatch

FATAL = ProductChoice(unrolled=2)
"""Takes the compiler down, or where FAULT says "run" the process that runs it; with "timeout" it
never comes to its end."""
FAULT = "EDGEKIT_TEST_FAULT"


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
            call = ("sleep", 3600) if os.environ[FAULT] == "timeout" else ("abort",)
            functions[self._deadly] = _calling(functions[self._deadly], *call)
        return super().linked(functions, folder)


def _calling(function: Any, *call: str | int) -> Any:
    from tvm import s_tir, tirx

    realize = function.body
    root = realize.block
    fault = tirx.Evaluate(tirx.call_extern("int32", *call))
    block = s_tir.SBlock(
        *(root.iter_vars, root.reads, root.writes, root.name_hint),
        body=tirx.SeqStmt([fault, root.body]),
        alloc_buffers=root.alloc_buffers,
        annotations=root.annotations,
    )
    return function.with_body(s_tir.SBlockRealize(realize.iter_values, realize.predicate, block))


def main() -> None:
    channel = Channel()
    setup = channel.next()
    load_tvm()
    from edgekit.compiler.schedules.vector_math import use_vector_math

    use_vector_math()
    serve(channel, FaultyWorkbench(setup))


if __name__ == "__main__":
    main()
