"""Writes docs/cli.md from the commands themselves: python docs/make_cli_reference.py"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from edgekit.cli import GROUPS, root

TARGET = Path(__file__).parent / "cli.md"

_INTRODUCTION = """\
# The command line

Written by `python docs/make_cli_reference.py`; a test compares it with the commands.

@TABLE@
## All commands

What all commands have in common:

- **Results go to stdout, everything else to stderr.** On a terminal, progress is a live display
  and each finished stage leaves a line; elsewhere, a line appears for a stage that took more than
  a second. No colours and no live display with `--no-color`, `NO_COLOR` or `TERM=dumb`, or when
  the output is not a terminal.
- **`--json`** prints exactly one JSON document on stdout. NaN and infinity become `null`. An error
  is a document too, unless the report was printed before it:
  `{"error": {"type", "message", "hint", "details", "exit_code"}}`.
- **Errors** are a sentence and a hint; the [exit code](exit-codes.md) tells the kind.
- **Without a model or a board** on the command line, [edgekit.toml](project-file.md) is asked.
- **Tab** completes commands, options, boards, toolchains, devices, models and bundles:
  `edgekit completion --help`.

These flags work before and after a command's name:

| flag | |
|---|---|
"""


def cli_reference() -> str:
    context = click.Context(root, info_name="edgekit", **root.context_settings)
    lines = [_INTRODUCTION.rstrip("\n").replace("@TABLE@\n", _table())]
    lines += [_row(option) for option in _options(root) if option.name != "version"]
    for path, command in _commands(root, context):
        lines += ["", *_section(path, command)]
    return "\n".join(lines) + "\n"


def _table() -> str:
    """Return a table of the commands, by group, with links to their sections."""
    lines = []
    for title, entries in GROUPS:
        lines += [f"| {title} | |", "|---|---|"]
        lines += [f"| [{each.name}](#edgekit-{each.name}) | {each.help} |" for each in entries]
        lines.append("")
    return "\n".join([*lines, ""])


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        path = f"{context.command_path} {name}"
        yield path, command
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, info_name=path))


def _section(path: str, command: click.Command) -> list[str]:
    words = [_word(argument) for argument in _arguments(command)]
    if isinstance(command, click.Group):
        words.append("COMMAND")
    level = "#" * (len(path.split()))
    lines = [f"{level} {path}", "", f"`{' '.join([path, *words])}`", "", *_help(command)]
    common = {option.opts[0] for option in _options(root)}
    own = [option for option in _options(command) if option.opts[0] not in common]
    if own:
        lines += ["", "| option | |", "|---|---|", *(_row(option) for option in own)]
    return lines


def _help(command: click.Command) -> list[str]:
    """click's help text as Markdown: a paragraph after \\b is kept as it is."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if lines:
            lines.append("")
        if paragraph.startswith("\b"):
            lines += ["```text", *paragraph.splitlines()[1:], "```"]
        else:
            lines += paragraph.splitlines()
    return lines


def _options(command: click.Command) -> list[click.Option]:
    return [
        parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]


def _arguments(command: click.Command) -> list[click.Argument]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Argument)]


def _word(argument: click.Argument) -> str:
    word = argument.metavar or str(argument.name).upper()
    return word if argument.required else f"[{word}]"


def _row(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names += f" {option.metavar or 'N'}"
    text = " ".join((option.help or "").split())
    if option.show_default and option.default is not None:
        text += f" [default: {option.default}]"
    return f"| `{_cell(names)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    TARGET.write_text(cli_reference(), encoding="utf-8")
