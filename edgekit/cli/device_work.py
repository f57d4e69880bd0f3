"""edgekit device exec, push, pull, shell, provision: the user's own work on devices."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgekit.base.errors import DevicesFailedError, UsageError
from edgekit.base.wording import counted, duration, printable, size
from edgekit.cli.console import Console
from edgekit.cli.device_options import remote_device_options, remote_devices_options
from edgekit.cli.options import Command, json_option, pass_console
from edgekit.verbs.fleet import Outcome, on_each, raise_if_any_failed

if TYPE_CHECKING:
    from edgekit.base.events import Events
    from edgekit.devices.device import Device

T = TypeVar("T")


@dataclass(frozen=True)
class WorkReport:
    """What came of the work on each device."""

    devices: tuple[Outcome[Any], ...]


@click.command("exec", cls=Command)
@remote_devices_options
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND…", type=click.UNPROCESSED)
@json_option
@pass_console
def exec_command(console: Console, where: Any, words: tuple[str, ...]) -> None:
    """Run a command on devices, several at the same time.

    Its words arrive unchanged, without a shell: use `sh -c` for pipes and wildcards. It gets no
    input, and ends with Ctrl-C or a lost connection.
    """
    from edgekit.devices.linux.user_files import Ended, run_command

    candidates = _chosen(console, where)

    def work(device: Device, events: Events) -> Ended:
        before = f"{device.name}: " if len(candidates) > 1 else ""

        def show(line: str) -> None:
            console.print(before + printable(line))

        with device.shell().logged_in(events) as connection:
            return run_command(connection, words, None if console.as_json else show)

    outcomes = on_each(candidates, work, console.events)
    console.report(WorkReport(outcomes), lambda: None)
    raise_if_any_failed(outcomes)
    failed = [f"{o.device} ({o.report.status})" for o in outcomes if o.report and o.report.status]
    if failed:
        raise DevicesFailedError(
            f"{printable(words[0])} failed on {', '.join(failed)}",
            hint="the number is its exit code; its output is above",
        )


@click.command("push", cls=Command)
@remote_devices_options
@click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE…", type=click.Path(path_type=Path)
)
@click.argument("target")
@json_option
@pass_console
def push_command(console: Console, where: Any, sources: tuple[Path, ...], target: str) -> None:
    """Copy files and folders of this host to devices.

    TARGET is relative to the home folder. Several sources, and a TARGET that is a folder or ends
    with /, keep their names. Files appear when all of them have arrived.
    """
    from edgekit.devices.linux.user_files import Copied, send_files

    def work(device: Device, events: Events) -> Copied:
        with device.shell().logged_in(events) as connection:
            return send_files(connection, sources, target, events)

    _copy(console, where, work, "sent")


@click.command("pull", cls=Command)
@remote_devices_options
@click.argument("source")
@click.argument("target", type=click.Path(path_type=Path), default=Path())
@json_option
@pass_console
def pull_command(console: Console, where: Any, source: str, target: Path) -> None:
    """Copy a file or folder of a device to this host; of several devices, to TARGET/DEVICE."""
    from edgekit.devices.linux.user_files import Copied, fetch_files

    several = len(_chosen(console, where)) > 1

    def work(device: Device, events: Events) -> Copied:
        place = target
        if several:
            place = target / device.name
            place.mkdir(parents=True, exist_ok=True)
        with device.shell().logged_in(events) as connection:
            return fetch_files(connection, source, place, events)

    _copy(console, where, work, "fetched")


@click.command("shell", cls=Command)
@remote_device_options
@pass_console
def shell_command(console: Console, where: Any) -> None:
    """Open a login shell on a device, in this terminal."""
    _need_fabric()
    from edgekit.fabric.connection import DeviceConnection

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "a shell needs a terminal", hint="edgekit device exec -- COMMAND runs one command"
        )
    with DeviceConnection(console.workspace.reached(**where).shell()) as connection:
        console.close()
        connection.shell()


@click.command("provision", cls=Command)
@remote_devices_options
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("tasks", nargs=-1, metavar="[TASK…]")
@json_option
@pass_console
def provision_command(console: Console, where: Any, file: Path, tasks: tuple[str, ...]) -> None:
    """Run tasks of a fabfile on devices, each held meanwhile.

    Without TASK: the default task, or the only one. FILE is a program, and runs on this host.
    """
    _need_fabric()
    from edgekit.fabric.provisioning import Provisioned, chosen_tasks, load_tasks, provision

    found = load_tasks(file)
    names = chosen_tasks(file, found, tasks)
    quiet = console.as_json or console.quiet

    def work(device: Device, events: Events) -> Provisioned:
        return provision(device.shell(), found, names, events, quiet=quiet)

    # What a task prints is no part of the document.
    with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
        outcomes = on_each(_chosen(console, where), work, console.events)
    _show(console, outcomes, "provisioned", lambda done: ", ".join(done.tasks))


def _chosen(console: Console, where: Any) -> Any:
    from edgekit.api.choice import remote_devices

    board, choice = where
    return remote_devices(console.workspace.setting, board, choice)


def _copy(console: Console, where: Any, work: Callable[[Device, Events], Any], well: str) -> None:
    outcomes = on_each(_chosen(console, where), work, console.events)

    def told(copied: Any) -> str:
        return f"{counted(copied.files, 'file')}, {size(copied.bytes)}, to {copied.target}"

    _show(console, outcomes, well, told)


def _show(
    console: Console, outcomes: tuple[Outcome[T], ...], well: str, told: Callable[[T], str]
) -> None:
    def render() -> None:
        for outcome in outcomes:
            if outcome.report is not None:
                took = duration(outcome.seconds)
                console.print(f"{outcome.device}: {well} {told(outcome.report)} in {took}")

    console.report(WorkReport(outcomes), render)
    raise_if_any_failed(outcomes)


def _need_fabric() -> None:
    try:
        import fabric  # noqa: F401
    except ImportError as error:
        raise UsageError("fabric is not installed", hint="pip install 'edgekit[fabric]'") from error
