"""Questions to the user: on a terminal only, and never without saying what is asked."""

from __future__ import annotations

import os
import sys

import click

from edgekit.base.wording import printable
from edgekit.cli.console import Console


def can_ask(console: Console) -> bool:
    """Return whether the user can be asked: a terminal shows the question, and takes the answer.

    A command in the background would be stopped by its terminal instead of getting an answer.
    """
    if console.as_json or os.environ.get("CI"):
        return False
    if not (sys.stdin.isatty() and console.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # the terminal is not this session's, which takes answers all the same
        return True


def confirmed(console: Console, lines: list[str], question: str) -> bool:
    """Show the lines and wait for the answer; no is the default."""
    console.close()
    for line in lines:
        click.echo(printable(line), err=True)
    try:
        return click.confirm(f"{question} This command waits.", default=False, err=True)
    except (click.Abort, KeyboardInterrupt):
        click.echo(err=True)  # what follows is not a part of the question's line
        raise
