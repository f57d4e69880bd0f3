"""Mistakes in a command line: click's errors in edgekit's words, with what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import click

from edgekit.base.errors import UsageError
from edgekit.base.wording import joined, nearest
from edgekit.cli import root

PROGRAM = "edgekit"

_ELSEWHERE: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("host", "hostname", "remote", "ssh", "ip", "address"), ("--device", "--on")),
    **dict.fromkeys(("target", "platform", "arch"), ("--board",)),
    **dict.fromkeys(("output", "output-dir", "outdir", "dest"), ("--out", "--output")),
    **dict.fromkeys(("backend", "backends", "library", "delegate"), ("--offload",)),
    **dict.fromkeys(("iterations", "repeat", "repeats", "count", "n"), ("--runs", "--trials")),
    **dict.fromkeys(("images", "image", "data", "sample"), ("--input", "--calibrate")),
    **dict.fromkeys(("input-shape", "input-shapes"), ("--shape",)),
    **dict.fromkeys(("emulator", "emulate", "qemu"), ("--twin",)),
    **dict.fromkeys(("yes", "overwrite", "y"), ("--force",)),
}
"""The options that other tools' words stand for."""

_MAKES: Mapping[str | None, str] = {
    "bundle": "name the folder of a bundle, which `edgekit build MODEL --board NAME` makes"
}
"""What to do for arguments that other commands make, by their names."""

_TYPES: Mapping[str, str] = {
    "not a valid integer range": "not a whole number",
    "not a valid integer": "not a whole number",
    "not a valid float range": "not a number",
    "not a valid float": "not a number",
}
"""Words of click's for kinds of values, and ours."""
_NO_PATH = re.compile(r"(?P<kind>Path|File|Directory) '(?P<path>.*)' does not exist")
_FEW_COMMANDS = 3


def usage_error(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    message, hint = _message(error), f"see {path} --help"
    no_path = _NO_PATH.fullmatch(message)
    if no_path is not None:
        kind = "folder" if no_path["kind"] == "Directory" else "file"
        message, hint = f"there is no {kind} {no_path['path']}", "check the path"
    elif isinstance(error, click.MissingParameter):
        hint = _missing(error, path) or hint
    elif isinstance(error, click.NoSuchOption):
        hint = _meant(error, context) or _of_another_command(error.option_name) or hint
    return UsageError(message[:1].lower() + message[1:], hint=hint)


def _message(error: click.ClickException) -> str:
    message = str(getattr(error, "message", "")) or error.format_message()
    message = " ".join(message.split()).rstrip(".")
    if isinstance(error, click.BadParameter) and not _NO_PATH.fullmatch(message):
        message = " ".join(error.format_message().split()).rstrip(".")
    for words, ours in _TYPES.items():
        message = message.replace(words, ours)
    return message


def _missing(error: click.MissingParameter, path: str) -> str | None:
    """Say how the command is written, or how to get what it needs."""
    if not isinstance(error.param, click.Argument) or error.ctx is None:
        return None
    if error.param.name in _MAKES:
        return f"{_MAKES[error.param.name]}; {path} --help explains the rest"
    words = " ".join((path, *error.ctx.command.collect_usage_pieces(error.ctx)))
    return f"write {words}; {path} --help explains it"


def _meant(error: click.NoSuchOption, context: click.Context | None) -> str | None:
    # Without the dashes: they would make every option look a little like every other.
    options = {name.lstrip("-"): name for name in error.possibilities or ()}
    word = error.option_name.lstrip("-")
    near = nearest(word, options)
    own = {name for option in context.command.params for name in option.opts} if context else set()
    of_others = (name for name in _ELSEWHERE.get(word, ()) if name in own)
    found = options[near] if near else next(of_others, None)
    return f"did you mean {found}?" if found else None


def _of_another_command(option: str) -> str | None:
    """Name the commands that have an option; None if none or many have it."""
    found = sorted(_having(root, option, PROGRAM))
    if not 0 < len(found) <= _FEW_COMMANDS:
        return None
    return f"{joined(found)} {'has' if len(found) == 1 else 'have'} {option}"


def _having(group: click.Group, option: str, path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _having(command, option, f"{path} {name}")
        elif command is not None and any(option in each.opts for each in command.params):
            yield f"{path} {name}"
