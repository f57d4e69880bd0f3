"""edgekit completion: print a shell's completion script.

bash and zsh themselves quote files and folders: click's own script for bash would insert
`my model.onnx` unquoted.
"""

from __future__ import annotations

from typing import ClassVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
)

from edgekit.cli.console import Console
from edgekit.cli.options import FITTING_PATH, FOLDER_TO_ENTER, Command, pass_console

COMPLETION_VARIABLE = "_EDGEKIT_COMPLETE"
"""The variable with which the shell's script requests completions instead of a run."""

_BASH = r"""
%(complete_func)s() {
    local IFS=$'\n' kind word
    COMPREPLY=()
    while IFS=, read -r kind word; do
        case $kind in
            word) COMPREPLY+=("$word") ;;
            path) compopt -o filenames; COMPREPLY+=("$word") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(
        COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1"
    )
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    """Completes for bash: readline quotes paths and adds the slash to a folder."""

    source_template: ClassVar[str] = _BASH

    def format_completion(self, item: CompletionItem) -> str:
        kinds = {"plain": "word", FITTING_PATH: "path", FOLDER_TO_ENTER: "path"}
        return f"{kinds.get(item.type, item.type)},{item.value}"


class _Zsh(ZshComplete):
    """Completes for zsh, which quotes paths and offers folders itself."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        offered = [_plain(item) for item in found if item.type != FOLDER_TO_ENTER]
        if len(offered) < len(found):
            offered.append(CompletionItem(incomplete, type="dir"))
        return offered


class _Fish(FishComplete):
    """Completes for fish, which quotes paths itself and adds no space after a slash."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return [_plain(item) for item in super().get_completions(args, incomplete)]


def _plain(item: CompletionItem) -> CompletionItem:
    if item.type == FITTING_PATH:
        return CompletionItem(item.value)
    if item.type == FOLDER_TO_ENTER:
        return CompletionItem(f"{item.value}/")
    return item


for _shell in (_Bash, _Zsh, _Fish):
    add_completion_class(_shell)


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
@pass_console
def command(console: Console, shell: str) -> None:
    """Print the script with which Tab completes commands, boards, devices and models.

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
