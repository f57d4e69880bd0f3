"""The process that finds a model's kernels and lets MetaSchedule propose schedules for them."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from edgekit.base.child import Channel, yield_to_others
from edgekit.base.failure import failure_of
from edgekit.base.tvm_compat import load_tensor_intrinsics, load_tvm
from edgekit.tuning.messages import FindTasks, Learn, Propose, Task

if TYPE_CHECKING:
    from edgekit.tuning.evolution import Evolution


def main() -> None:
    channel = Channel()
    order = channel.next()
    assert isinstance(order, FindTasks)
    if order.yields:
        yield_to_others()
    load_tvm()
    try:
        searches = _Searches(order)
    except Exception as error:  # noqa: BLE001 - reported to the search
        channel.send(failure_of(error))
        return
    channel.send(tuple(searches.tasks.values()))
    while True:
        message = channel.next()
        if isinstance(message, Propose):
            channel.send(searches.propose(message))
        else:
            assert isinstance(message, Learn)
            searches.learn(message)


class _Searches:
    def __init__(self, order: FindTasks) -> None:
        import tvm

        from edgekit.compiler.schedules.machine import machine_of
        from edgekit.tuning.kernels import tasks_of

        self._seed = order.seed
        self._target = tvm.target.Target(order.target.as_json())
        machine = machine_of(self._target)
        self.tasks: dict[str, Task] = {
            task.key: task for task in tasks_of(order, self._target, machine)
        }
        self._begun: dict[str, Evolution | None] = {}

    def propose(self, message: Propose) -> tuple[str, ...]:
        search = self._search(message.key)
        if search is None:
            return ()
        try:
            return tuple(search.propose(message.count))
        except Exception:  # noqa: BLE001 - MetaSchedule has no more schedules for this kernel
            traceback.print_exc()
            self._begun[message.key] = None
            return ()

    def learn(self, message: Learn) -> None:
        search = self._search(message.key)
        if search is None:
            return
        try:
            search.learn(message.measured)
        except Exception:  # noqa: BLE001 - the search goes on without these times
            traceback.print_exc()

    def _search(self, key: str) -> Evolution | None:
        """Return a kernel's search, None if MetaSchedule has no schedules for it."""
        if key not in self._begun:
            self._begun[key] = self._started(self.tasks[key])
        return self._begun[key]

    def _started(self, task: Task) -> Evolution | None:
        if not task.traced:
            return None
        import tvm

        load_tensor_intrinsics()
        from edgekit.tuning.evolution import Evolution

        try:
            function: Any = tvm.ir.load_json(task.subject.function)
            return Evolution(function, self._target, self._seed)
        except Exception:  # noqa: BLE001 - MetaSchedule has no schedule for this kernel
            traceback.print_exc()
            return None


if __name__ == "__main__":
    main()
