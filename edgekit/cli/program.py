"""Runs a command line and turns the outcome into an exit code."""

from __future__ import annotations

import gc
import io
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TextIO

import click

from edgekit.base.consent import TrustedFile, asking
from edgekit.base.errors import EdgekitError, InterruptedByUserError, StorageError
from edgekit.base.limits import (
    explained_by_limits,
    explained_interrupt,
    reached_limit,
    refuse_hopeless_limits,
)
from edgekit.base.options import named_as_on_the_command_line
from edgekit.base.wording import PURPOSE
from edgekit.cli import root
from edgekit.cli.completion import COMPLETION_VARIABLE
from edgekit.cli.console import Console
from edgekit.cli.usage_errors import PROGRAM, usage_error

OUTPUT_CLOSED = 128 + signal.SIGPIPE

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP, handled like Ctrl-C so that every clean-up runs."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def main() -> None:
    """Run the `edgekit` process."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run_command_line(sys.argv[1:])
    # A failing flush must not make the interpreter print errors at shutdown.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    gc.freeze()  # the memory goes with the process: a search for garbage costs up to 0.15 seconds
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed (`>&-`), so that no file takes their place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command line and return an exit code of docs/exit-codes.md."""
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, PROGRAM, COMPLETION_VARIABLE, instruction)
    console = Console()
    try:
        with (
            _signals_as_exceptions(),
            asking(partial(_trusts, console)),
            named_as_on_the_command_line(),
        ):
            refuse_hopeless_limits()
            return _run_command(list(arguments), console)
    except click.ClickException as error:
        _flags_before_the_mistake(arguments, console)
        return _fail(console, usage_error(error), error)
    except EdgekitError as error:
        _flags_before_the_mistake(arguments, console)
        return _fail(console, reached_limit(error) or error, error)
    except EndedBySignal as error:
        ended = InterruptedByUserError(f"ended by {error}")
        return _fail(console, ended, error, 128 + error.number)
    except (KeyboardInterrupt, click.Abort) as error:
        return _fail(console, explained_interrupt() or InterruptedByUserError("interrupted"), error)
    except BrokenPipeError as error:
        if _reader_is_gone(sys.stdout) or _reader_is_gone(sys.stderr):
            return OUTPUT_CLOSED
        return _fail(console, _bug(error), error)
    except Exception as error:  # noqa: BLE001 - the last resort, reported as the bug it is
        explained = explained_by_limits(error) or _folder_is_gone(error)
        return _fail(console, explained or _bug(error), error)
    finally:
        console.close()


def _trusts(console: Console, files: Sequence[TrustedFile]) -> bool:
    from edgekit.cli.trust import ask_person

    return ask_person(console, files)


def _run_command(arguments: list[str], console: Console) -> int:
    """Run a command without click's `main`, which swallows Ctrl-C and broken pipes."""
    try:
        with root.make_context(PROGRAM, arguments, obj=console) as context:
            commands = root.list_commands(context)
            # Child processes inherit the name of the command they work for.
            os.environ[PURPOSE] = next((word for word in arguments if word in commands), PROGRAM)
            root.invoke(context)
    except click.exceptions.Exit as ended:
        sys.stdout.flush()
        return ended.exit_code
    sys.stdout.flush()
    return 0


def _fail(
    console: Console, error: EdgekitError, cause: BaseException, exit_code: int | None = None
) -> int:
    code = error.exit_code if exit_code is None else exit_code
    try:
        if console.debug:
            console.traceback(cause)
        console.error(error, code)
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except StorageError:
        return code  # the output has no room for its own error either
    return code


def _folder_is_gone(error: Exception) -> EdgekitError | None:
    """Explain an error whose cause is a deleted working directory."""
    if isinstance(error, FileNotFoundError):
        from edgekit.project.workspace import open_workspace

        try:
            open_workspace()
        except StorageError as gone:
            return gone
    return None


def _bug(error: Exception) -> EdgekitError:
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return EdgekitError(
        f"this is a bug in edgekit: {what}",
        hint="run the same command with --debug and report it with the traceback",
    )


def _flags_before_the_mistake(arguments: Sequence[str], console: Console) -> None:
    """Apply the flags of a command line that can't be parsed, to show its error as requested."""
    flags = list(arguments)
    if "--" in flags:
        flags = flags[: flags.index("--")]
    console.as_json |= "--json" in flags
    console.debug |= "--debug" in flags
    console.color &= "--no-color" not in flags


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    def raise_it(number: int, frame: FrameType | None) -> None:
        raise EndedBySignal(number)

    replaced = []
    for number in _ENDING_SIGNALS:
        # A signal that is being ignored (nohup) stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            replaced.append((number, signal.signal(number, raise_it)))
    try:
        yield
    finally:
        for number, handler in replaced:
            signal.signal(number, handler)


def _reader_is_gone(stream: TextIO) -> bool:
    """Return whether the reader of our output is gone (`| head`), and not a device's pipe."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
