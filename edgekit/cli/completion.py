"""edgekit completion: the script that makes a shell complete edgekit's words."""

from __future__ import annotations

import click

from edgekit.cli.options import pass_console
from edgekit.console import Console

COMPLETION_VARIABLE = "_EDGEKIT_COMPLETE"
"""The shell's script sets it to ask this program for completions instead of running it."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
@pass_console
def command(console: Console, shell: str) -> None:
    """Print the script that completes commands, boards, devices and models with Tab.

    SHELL is bash, zsh or fish.

    \b
    bash: eval "$(edgekit completion bash)"       in ~/.bashrc
    zsh:  eval "$(edgekit completion zsh)"        in ~/.zshrc, after compinit
    fish: edgekit completion fish | source        in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from edgekit.cli import root

    completer = get_completion_class(shell)
    assert completer is not None
    console.print(completer(root, {}, "edgekit", COMPLETION_VARIABLE).source())
