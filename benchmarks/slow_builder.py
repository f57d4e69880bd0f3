"""A builder of candidates that pause in each run, as those of a slow device do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgekit.base.child import Channel
from edgekit.base.tvm_compat import load_tvm
from edgekit.tuning.builder import Workbench, serve
from edgekit.tuning.messages import OWN

PAUSE = "EDGEKIT_BENCHMARK_PAUSE"
"""The microseconds of each run's pause."""


class _SlowWorkbench(Workbench):
    def linked(self, functions: dict[str, Any], folder: Path) -> Path:
        slowed = {
            name: _slowed(function) if name.startswith(OWN) else function
            for name, function in functions.items()
        }
        return super().linked(slowed, folder)


def _slowed(function: Any) -> Any:
    from tvm import s_tir, tirx

    realize = function.body
    root = realize.block
    sleep = tirx.Evaluate(tirx.call_extern("int32", "usleep", int(os.environ[PAUSE])))
    block = s_tir.SBlock(
        *(root.iter_vars, root.reads, root.writes, root.name_hint),
        body=tirx.SeqStmt([sleep, root.body]),
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
    serve(channel, _SlowWorkbench(setup))


if __name__ == "__main__":
    main()
