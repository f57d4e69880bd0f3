"""edgekit help: show the help of a command."""

from __future__ import annotations

import click

from edgekit.cli.console import Console
from edgekit.cli.options import Command, pass_console


@click.command("help", cls=Command)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@pass_console
def command(console: Console, words: tuple[str, ...]) -> None:
    """Show the help of edgekit, or of COMMAND, such as `edgekit help device add`."""
    context = click.get_current_context().find_root()
    shown: click.Command = context.command
    for word in words:
        if not isinstance(shown, click.Group):
            raise click.UsageError(f"{context.command_path} has no commands", context)
        _, found, _ = shown.resolve_command(context, [word])
        assert found is not None
        shown = found
        context = click.Context(shown, info_name=word, parent=context)
    console.print(shown.get_help(context))
