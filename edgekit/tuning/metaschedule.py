"""The process that converts kernels and traces between the store and MetaSchedule's database.

A bad file may crash it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit.base.child import Channel
from edgekit.base.tvm_compat import load_tvm
from edgekit.tuning.metaschedule_files import Exported, KernelOf, ToExport, ToRead

_MAIN = "main"


def export_to(folder: Path, order: ToExport) -> Exported:
    """Write MetaSchedule's files, without traces that do not fit their kernel."""
    import tvm
    from tvm import s_tir
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

    from edgekit.compiler.schedules.trace import schedule_by_trace

    database = JSONDatabase(work_dir=str(folder))
    modules = [_module_of(text) for text in order.modules]
    workloads: dict[int, Any] = {}
    written = 0
    for record in order.records:
        module = modules[record.module]
        schedule = s_tir.Schedule(module)
        try:
            schedule_by_trace(schedule, record.trace)
        except s_tir.ScheduleError:
            continue
        if record.module not in workloads:
            workloads[record.module] = database.commit_workload(module)
        database.commit_tuning_record(
            TuningRecord(
                schedule.trace,
                workloads[record.module],
                [record.seconds],
                tvm.target.Target(json.loads(record.target)),
                ArgInfo.from_entry_func(module, remove_preproc=True),
            )
        )
        written += 1
    return Exported(written, len(order.records) - written)


def kernel_of(line: tuple[str, str]) -> KernelOf | None:
    """Return the kernel of a workload line, None if it is not a single readable kernel."""
    import tvm
    from tvm.s_tir.meta_schedule.database import Workload

    from edgekit.compiler.schedules.kernels import exact_key_of

    try:
        module = Workload.from_json(list(line)).mod
        functions = dict(module.functions_items())
    except (RuntimeError, ValueError, TypeError, LookupError):
        return None
    if len(functions) != 1:
        return None
    ((name, function),) = functions.items()
    if name.name_hint != _MAIN or not isinstance(function, tvm.tirx.PrimFunc):
        return None
    plain = function.without_attr("global_symbol")
    sides = ", ".join(_side(parameter) for parameter in plain.params)
    words = f"kernel of {sides}"[:500]
    return KernelOf(exact_key_of(plain), words, tvm.ir.save_json(plain))


def _side(parameter: Any) -> str:
    shape = getattr(parameter.ty, "shape", ())
    return "x".join(str(getattr(extent, "value", "?")) for extent in shape) or "a number"


def _module_of(text: str) -> Any:
    import tvm

    function = tvm.ir.load_json(text)
    return tvm.IRModule({_MAIN: function.with_attr("global_symbol", _MAIN)})


def main() -> None:
    channel = Channel()
    order = channel.next()
    load_tvm()
    if isinstance(order, ToExport):
        channel.send(export_to(order.folder, order))
    else:
        assert isinstance(order, ToRead)
        channel.send(tuple(kernel_of(line) for line in order.workloads))
    channel.end()


if __name__ == "__main__":
    main()
