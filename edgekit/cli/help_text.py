"""Lays out --help: what a command has of its own, and in one line what all commands have."""

from __future__ import annotations

import re

import click

EVERYWHERE = ("--quiet", "--verbose", "--debug", "--no-color", "--help")
"""The options of every command, which `edgekit --help` explains."""

_NO_LIMIT = 500

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

_LIMITS = re.compile(r"(?:; )?(\S+?)<=x<=(\S+?)\]|; x[<>]=?[^\]]*\]|\[x[<>]=?[^\]]*\]")


def write_options(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write a command's own options; the root writes all of its own."""
    is_root = context.parent is None
    records = [
        (names.replace("INTEGER RANGE", "N"), _readable(text))
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and (is_root or not set(EVERYWHERE) & set(parameter.opts))
        if (record := parameter.get_help_record(context)) is not None
        for names, text in [record]
    ]
    if records:
        with formatter.section("Options"):
            formatter.write_dl(records)
    if not is_root:
        formatter.write_paragraph()
        formatter.write_text(
            "With every command: -q, -v, --debug, --no-color, -h (edgekit --help)."
        )


def write_commands(
    group: click.Group, context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the commands of a group, each with its whole first sentence."""
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    records = [
        (name, command.get_short_help_str(limit=_NO_LIMIT))
        for name, command in found
        if command is not None and not command.hidden
    ]
    with formatter.section("Commands"):
        formatter.write_dl(records)


def _readable(text: str) -> str:
    """Say the limits of a number in words, where they are not obvious."""

    def in_words(match: re.Match[str]) -> str:
        whole = match[0]
        end = "" if whole.startswith("[") else "]"
        if match[1] is None:
            return end
        low = match[1].lstrip("[")
        begin = "; " if whole.startswith("; ") else "["
        return f"{begin}{low} to {match[2]}]"

    return _LIMITS.sub(in_words, text).rstrip()
