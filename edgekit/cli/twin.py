"""edgekit twin: start, stop and reach emulated boards."""

from __future__ import annotations

import shlex
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from edgekit.base.errors import UsageError
from edgekit.base.wording import counted, duration, natural, size
from edgekit.cli.console import Console
from edgekit.cli.options import BOARD, Group, grouped, json_option, pass_console
from edgekit.twin.systemd import DEFAULT_INIT, INITS, Init

if TYPE_CHECKING:
    from edgekit.profiles.board import Board

_FOLLOW_SECONDS = 0.3


class _TwinName(click.types.StringParamType):
    name = "twin"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from edgekit.twin.processes import machines_dir

        folder = machines_dir()
        names = (
            sorted((path.name for path in folder.iterdir() if path.is_dir()), key=natural)
            if folder.is_dir()
            else []
        )
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class _BoardOrTwin(_TwinName):
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        offered = [
            *BOARD.shell_complete(ctx, param, incomplete),
            *super().shell_complete(ctx, param, incomplete),
        ]
        return list({item.value: item for item in offered}.values())


TWIN = _TwinName()
BOARD_OR_TWIN = _BoardOrTwin()


@dataclass(frozen=True)
class StatusReport:
    twins: tuple[object, ...]


@dataclass(frozen=True)
class StopReport:
    twins: tuple[object, ...]


@click.group("twin", cls=Group, short_help="Start and stop emulated boards.")
def command() -> None:
    """Start and stop emulated twins of boards in QEMU.

    The twin of a Linux board is a whole system, reached over SSH. The first start builds an image
    from Debian packages, which all twins share. The twin of a microcontroller is a chip, blank
    until `edgekit flash` or `deploy --twin` writes its firmware, with its serial line on a local
    port.
    """


@command.command("up", short_help="Start a twin.")
@click.argument("word", metavar="BOARD|NAME", type=BOARD_OR_TWIN)
@click.option("--name", metavar="NAME", help="Name of the twin.  [default: the board's name]")
@click.option("--fresh", is_flag=True, help="Start with an empty disk.")
@click.option(
    "--init",
    type=click.Choice(INITS),
    help="The init system: busybox starts faster, systemd runs services.",
)
@click.option(
    "--icount/--no-icount",
    default=None,
    help="Let the clock count instructions, on one core.  [default: as before]",
)
@json_option
@pass_console
def up_command(
    console: Console,
    word: str,
    name: str | None,
    fresh: bool,
    init: Init | None,
    icount: bool | None,
) -> None:
    """Start a board's twin and wait until it answers, unless it already runs."""
    from edgekit.twin.machine import StartOptions, all_twins, up

    known = {twin.name: twin.board for twin in all_twins()}
    board = console.workspace.data.board(word if name else known.get(word) or word)
    if not board.has_os:
        if init is not None or icount is not None:
            raise UsageError(
                "--init and --icount are for twins of Linux boards",
                hint="leave them out: a microcontroller's always counts instructions",
            )
        _up_microcontroller(console, name or word, board, fresh)
        return
    options = StartOptions(fresh, init, icount)
    started = up(name or word, board, options, events=console.events)

    def render() -> None:
        state = "runs already" if started.already_running else f"up in {duration(started.seconds)}"
        console.print(f"{started.name}: {state}")
        hardware = started.hardware
        console.fields(
            [
                ("board", started.board),
                ("init", started.init),
                (
                    "emulates",
                    f"{hardware.cpu}, {counted(hardware.cores, 'core')}, {size(hardware.memory)}",
                ),
                ("clock", "counts instructions" if hardware.icount else "the host's"),
                ("shell", f"edgekit twin ssh {started.name}"),
                ("address", f"{started.access.user}@{started.access.host}:{started.access.port}"),
                ("key", started.access.key),
                ("for ssh, scp, rsync", shlex.join(started.access.command())),
            ]
        )

    console.report(started, render)


def _up_microcontroller(console: Console, name: str, board: Board, fresh: bool) -> None:
    from edgekit.twin import microcontroller

    started = microcontroller.up(name, board, fresh=fresh, events=console.events)

    def render() -> None:
        state = "runs already" if started.already_running else f"up in {duration(started.seconds)}"
        console.print(f"{started.name}: {state}")
        console.fields(
            [
                ("board", started.board),
                ("emulates", f"{started.hardware.machine}, {started.hardware.cpu}"),
                ("clock", "counts instructions"),
                ("serial port", started.serial),
                ("debugger", f"target remote {started.folder / microcontroller.GDB_SOCKET}"),
            ]
        )

    console.report(started, render)


@command.command("down", short_help="Stop twins.")
@click.argument("words", metavar="[NAME|BOARD]...", nargs=-1, type=TWIN)
@click.option("--all", "every", is_flag=True, help="Stop every twin.")
@click.option("--delete", is_flag=True, help="Also remove disks and keys.")
@json_option
@pass_console
def down_command(console: Console, words: tuple[str, ...], every: bool, delete: bool) -> None:
    """Shut twins down. Their disks are kept for the next start, unless deleted."""
    from edgekit.twin.machine import all_twins, down, find_twin

    if every == bool(words):
        raise UsageError("which twins?", hint="name some, or say --all")
    names = [twin.name for twin in all_twins()] if every else [find_twin(w).name for w in words]
    stopped = tuple(
        down(name, delete=delete, events=console.events) for name in dict.fromkeys(names)
    )

    def render() -> None:
        for twin in stopped:
            console.print(f"{twin.name}: {twin.how}{', deleted' if twin.deleted else ''}")
        if not stopped:
            console.print("there are no twins")

    console.report(StopReport(stopped), render)


@command.command("status", short_help="List twins and their state.")
@click.argument("word", metavar="[NAME|BOARD]", required=False, type=TWIN)
@json_option
@pass_console
def status_command(console: Console, word: str | None) -> None:
    """List every twin on this host, running or not."""
    from edgekit.twin.machine import all_twins, find_twin

    twins = (find_twin(word),) if word else all_twins()

    def render() -> None:
        if not twins:
            console.print("there are no twins; edgekit twin up BOARD starts one")
            return
        rows = [
            (
                twin.name,
                twin.condition,
                twin.board,
                twin.hardware.cpu if twin.hardware else None,
                twin.access.port if twin.access else twin.serial,
                twin.pid,
                size(twin.disk_bytes),
                twin.problem or "",
            )
            for twin in twins
        ]
        columns = ("name", "state", "board", "cpu", "process", "disk", "problem", "port")
        console.table(columns, rows, right=("process", "disk"), spare=("process", "disk"))

    console.report(StatusReport(twins), render)


@command.command(
    "ssh",
    short_help="Open a shell or run a command on a twin.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("word", metavar="NAME|BOARD", type=TWIN)
@click.argument("remote", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def ssh_command(word: str, remote: tuple[str, ...]) -> None:
    """Run OpenSSH with the twin's own keys. The command, if any, goes to the twin's shell."""
    from edgekit.base.children import become
    from edgekit.base.errors import DeviceError
    from edgekit.twin.machine import find_twin
    from edgekit.twin.tools import TO_REACH, require_tools

    twin = find_twin(word)
    if twin.access is None or twin.condition != "running":
        raise DeviceError(
            f"the twin {twin.name} does not run; its state is: {twin.condition}",
            hint=f"edgekit twin up {twin.name}",
        )
    require_tools(TO_REACH, "a twin")
    become(twin.access.command(*remote))


@command.command("logs", short_help="Show a twin's console, or how the image was built.")
@click.argument("word", metavar="[NAME|BOARD]", required=False, type=TWIN)
@click.option(
    "--build",
    "building",
    is_flag=True,
    help="Show the log of the image's build instead: that of 64-bit Arm if no twin is named.",
)
@click.option("--previous", is_flag=True, help="Show the console of the previous run.")
@grouped(
    "shown",
    dict,
    click.option("--follow", "-f", is_flag=True, help="Show new lines until Ctrl-C."),
    click.option(
        "--lines", "-n", type=click.IntRange(1), metavar="N", help="Show only the last N lines."
    ),
)
@click.option("--init", type=click.Choice(INITS), help="With --build: which image.")
@pass_console
def logs_command(
    console: Console,
    word: str | None,
    building: bool,
    previous: bool,
    shown: dict[str, Any],
    init: Init | None,
) -> None:
    """Show what the twin's kernel and sshd wrote to its serial console."""
    from edgekit.profiles.board import load_board
    from edgekit.twin.image import build_log
    from edgekit.twin.machine import find_twin
    from edgekit.twin.processes import twin_folder
    from edgekit.twin.qemu import CONSOLE, OLD_CONSOLE
    from edgekit.twin.systemd import recipe_for

    if word and find_twin(word).serial is not None:
        raise UsageError(
            f"{word} is a microcontroller, which keeps no log", hint="edgekit monitor --twin"
        )
    if not building and not word:
        raise UsageError("which log?", hint="name a twin, or say --build")
    if word and not building:
        path = twin_folder(find_twin(word).name) / (OLD_CONSOLE if previous else CONSOLE)
    else:
        arch = load_board(find_twin(word).board or "").cpu.arch if word else "aarch64"
        path = build_log(recipe_for(init or DEFAULT_INIT, arch))
    _show_log(console, path, **shown)


def _show_log(console: Console, path: Path, lines: int | None, follow: bool) -> None:
    from edgekit.base.files import storage_errors

    with storage_errors("read the log", path), path.open(errors="replace", newline="\n") as stream:
        for line in deque(stream, maxlen=lines):
            console.print(_console_line(line))
        while follow:
            line = stream.readline()
            if line:
                console.print(_console_line(line))
            else:
                time.sleep(_FOLLOW_SECONDS)


def _console_line(line: str) -> str:
    """Remove the carriage returns of a serial console."""
    return line.replace("\r", "").rstrip()
