"""The process that compiles batches: many variants of one kernel, into one library.

Several run at the same time. If one crashes, the candidates of its batch are compiled one by one.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.child import Channel, yield_to_others
from edgekit.base.tvm_compat import load_tvm
from edgekit.tuning.messages import (
    FAR,
    OWN,
    SPOIL,
    BatchOrder,
    BuilderSetup,
    BuildFailure,
    BuiltBatch,
    BuiltFunction,
)

if TYPE_CHECKING:
    from edgekit.tuning.scheduled_kernels import ScheduledKernel

_PLACE_OF_OWN = -1


def main(kind: type[Workbench] | None = None) -> None:
    """Serve until the search ends; tests and benchmarks give an extended `kind`."""
    channel = Channel()
    setup = channel.next()
    assert isinstance(setup, BuilderSetup)
    if setup.yields:
        yield_to_others()
    load_tvm()
    workbench = (kind or Workbench)(setup)
    while True:
        order = channel.next()
        assert isinstance(order, BatchOrder)
        try:
            channel.send(workbench.make(order))
        except Exception as error:  # noqa: BLE001 - reported to the search, which retries
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [type(error).__name__]
            places = range(_PLACE_OF_OWN, len(order.choices))
            failures = tuple(BuildFailure(place, "compile", lines[-1][:300]) for place in places)
            empty = order.folder / "nothing.so"
            channel.send(BuiltBatch(empty, order.inputs, order.subject.output, (), failures))


class Workbench:
    def __init__(self, setup: BuilderSetup) -> None:
        import tvm

        from edgekit.compiler.schedules.machine import machine_of

        self._setup = setup
        self._target = tvm.target.Target(setup.target.as_json())
        self._machine = machine_of(self._target)

    def make(self, order: BatchOrder) -> BuiltBatch:
        import tvm_ffi

        from edgekit.compiler.schedules.apply import schedule_function
        from edgekit.tuning.filters import why_not
        from edgekit.tuning.scheduled_kernels import (
            NotPossible,
            far_apart_kernel,
            scheduled,
            spoiling_kernel,
        )

        own = scheduled(order.subject, None, self._machine)
        ways: list[tuple[int, ScheduledKernel]] = [(_PLACE_OF_OWN, own)]
        failures = []
        for place, choice in enumerate(order.choices):
            try:
                way = scheduled(order.subject, choice, self._machine)
            except NotPossible as error:
                failures.append(BuildFailure(place, "compile", str(error)))
                continue
            if any(tvm_ffi.structural_equal(way.function, other.function) for _, other in ways):
                failures.append(BuildFailure(place, "filtered", "the same code as another"))
            elif (reason := why_not(way.function, self._machine)) is not None:
                failures.append(BuildFailure(place, "filtered", reason))
            else:
                ways.append((place, way))
        functions = {
            FAR: schedule_function(far_apart_kernel(order.subject.output), self._machine),
            SPOIL: schedule_function(spoiling_kernel(order.subject.output), self._machine),
        }
        built = []
        for place, way in ways:
            symbol = OWN if place == _PLACE_OF_OWN else f"{OWN}_{place}"
            functions[symbol] = way.function
            built.append(BuiltFunction(place, symbol, way.arguments))
        library = self.linked(functions, order.folder)
        self._write_inputs(order, {name for _, way in ways for name in way.arguments})
        output = order.subject.output
        return BuiltBatch(library, order.inputs, output, tuple(built), tuple(failures))

    def linked(self, functions: dict[str, Any], folder: Path) -> Path:
        import tvm

        from edgekit.compiler.passes.finish import lowering
        from edgekit.cross.link import export_objects, link_shared_library

        module = tvm.IRModule(
            {
                name: function.with_attr("global_symbol", name)
                for name, function in functions.items()
            }
        )
        executable = tvm.compile(module, target=self._target, tir_pipeline=lowering())
        objects = export_objects(executable, self._setup.target.triple, folder)
        library = folder / "batch.so"
        link_shared_library(objects, self._setup.linker, folder, library)
        return library

    def _write_inputs(self, order: BatchOrder, names: set[str]) -> None:
        """Write each input once; several builders may do so at the same time."""
        import numpy as np

        from edgekit.tuning.scheduled_kernels import values_of

        missing = {name for name in names if not (order.inputs / f"{name}.npy").exists()}
        for name, array in values_of(order.subject, missing) if missing else ():
            order.inputs.mkdir(parents=True, exist_ok=True)
            unfinished = order.inputs / f"{name}.{os.getpid()}"
            with unfinished.open("wb") as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
            unfinished.rename(order.inputs / f"{name}.npy")


if __name__ == "__main__":
    main()
