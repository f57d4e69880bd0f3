"""Tasks of a fabfile on devices. A device is held meanwhile, so that nothing is measured on it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import invoke
from invoke.exceptions import UnexpectedExit
from invoke.executor import Executor
from invoke.tasks import Call

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import did_you_mean, printable
from edgekit.fabric.connection import DeviceConnection, settings

if TYPE_CHECKING:
    from edgekit.devices.device import HasShell

_LAST_LINES = 12


@dataclass(frozen=True)
class Provisioned:
    """The tasks that ran on one device, in their order."""

    tasks: tuple[str, ...]


def load_tasks(file: Path) -> invoke.Collection:
    """Run a fabfile and return its tasks. It is the user's own program."""
    spec = importlib.util.spec_from_file_location("fabfile", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UsageError(f"{file} is no Python file", hint="give a fabfile: fabfile.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return invoke.Collection.from_module(module)
    except Exception as error:
        raise UsageError(
            f"{file} cannot be loaded: {type(error).__name__}: {error}",
            hint="correct the fabfile",
        ) from error


def chosen_tasks(file: Path, tasks: invoke.Collection, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tasks to run: the given ones, the default, or the only one."""
    known = sorted(tasks.task_names)
    for name in names:
        if name not in known:
            raise UsageError(
                f"{file} has no task {name!r}",
                hint=did_you_mean(name, known, f"its tasks are {', '.join(known)}"),
            )
    if names:
        return tuple(names)
    default = tasks.default or (known[0] if len(known) == 1 else None)
    if default is None:
        has = f"its tasks are {', '.join(known)}" if known else "decorate a function with @task"
        raise UsageError(f"no task of {file} is chosen", hint=f"name one: {has}")
    return (default,)


def provision(
    device: HasShell,
    tasks: invoke.Collection,
    names: Sequence[str],
    events: Events = SILENT,
    *,
    quiet: bool = False,
) -> Provisioned:
    """Run tasks, and those that they need, on a device that is held meanwhile."""
    config = settings(hide=quiet)
    with (
        device.held("provision", events),
        DeviceConnection(device, config) as connection,
        events.stage(f"provision {device.name}: {', '.join(names)}"),
    ):
        try:
            done = _OnDevice(tasks, config, connection).execute(*names)
        except UnexpectedExit as error:
            result = error.result
            said = (result.stderr or result.stdout).splitlines()[-_LAST_LINES:]
            raise DeviceError(
                f"a command ended with exit code {result.exited} on {device.name}: "
                f"{printable(result.command)[:200]}",
                hint="correct the task, or the device",
                details=tuple(printable(line) for line in said),
            ) from error
    return Provisioned(tuple(task.name for task in done))


class _OnDevice(Executor):  # type: ignore[misc] # invoke has no types
    """Gives every task, also the ones before and after another, the connection."""

    def __init__(self, tasks: Any, config: Any, connection: DeviceConnection) -> None:
        super().__init__(tasks, config)
        self._connection = connection

    def expand_calls(self, calls: list[Call]) -> list[Call]:
        found = super().expand_calls(calls)
        return [_DeviceCall.of(call, self._connection) for call in found]


class _DeviceCall(Call):  # type: ignore[misc]
    """A call of a task with a connection that is there already."""

    connection: DeviceConnection

    @staticmethod
    def of(call: Call, connection: DeviceConnection) -> _DeviceCall:
        made = call if isinstance(call, _DeviceCall) else call.clone(into=_DeviceCall)
        made.connection = connection
        return made

    def make_context(self, config: Any) -> DeviceConnection:
        return self.connection
