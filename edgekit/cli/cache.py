"""edgekit cache: what finished builds take up on this machine, and how to get the room back."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import click

from edgekit.cli.options import Group, json_option, pass_console
from edgekit.console import Console
from edgekit.errors import UsageError
from edgekit.wording import duration, size

_AGE = re.compile(r"([0-9]{1,6})\s*(s|m|h|d|w)")
_AGE_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class CacheSize:
    path: str
    entries: int
    size: int
    """Bytes."""


def parse_age(text: str) -> int:
    """Seconds: 30d, 12h, 2w."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an age", hint="write 30d, 12h or 2w")
    return int(match[1]) * _AGE_UNITS[match[2]]


def parse_room(text: str) -> int:
    """Bytes: 2GB, 500 MiB, 0."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size", hint="write 2GB, 500MB or 1GiB")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _age_option(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_age(text)


def _room_option(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | None:
    return None if text is None else parse_room(text)


@click.group("cache", cls=Group)
def command() -> None:
    """Show and tidy the cache of finished builds."""


@command.command("size")
@json_option
@pass_console
def size_command(console: Console) -> None:
    """Show where the cache is and what it takes up."""
    from edgekit.cache import BuildCache

    cache = BuildCache()
    entries = cache.entries()
    total = CacheSize(str(cache.root), len(entries), sum(entry.size for entry in entries))
    console.report(
        total,
        lambda: console.fields(
            [("path", total.path), ("builds", total.entries), ("size", size(total.size))]
        ),
    )


@command.command("list")
@json_option
@pass_console
def list_command(console: Console) -> None:
    """List the cached builds, the most recently used first."""
    from edgekit.cache import BuildCache

    entries = BuildCache().entries()
    now = time.time()

    def render() -> None:
        if not entries:
            console.print("the cache is empty")
            return
        console.table(
            ("KEY", "KIND", "SIZE", "LAST USED", "WHAT"),
            [
                (
                    entry.key[:12],
                    entry.kind,
                    size(entry.size),
                    f"{duration(max(0.0, now - entry.used))} ago",
                    entry.title,
                )
                for entry in entries
            ],
            right=("SIZE",),
        )

    console.report(entries, render)


@command.command("prune")
@click.option(
    "--older-than",
    metavar="AGE",
    callback=_age_option,
    help="Remove what was not used for so long: 30d, 12h.",
)
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=_room_option,
    help="Remove the least recently used until this much is left: 2GB.",
)
@click.option("--all", "everything", is_flag=True, help="Remove everything.")
@json_option
@pass_console
def prune_command(
    console: Console, older_than: int | None, max_size: int | None, everything: bool
) -> None:
    """Remove cached builds; they are made again when they are needed."""
    from edgekit.cache import BuildCache

    if everything:
        max_size = 0
    elif older_than is None and max_size is None:
        raise UsageError(
            "edgekit cache prune was not told what to remove",
            hint="add --older-than 30d, --max-size 2GB or --all",
        )
    pruned = BuildCache().prune(older_than=older_than, max_bytes=max_size)

    def render() -> None:
        console.print(f"removed {_builds(len(pruned.removed))}, {size(pruned.freed)}")
        if pruned.in_use:
            console.print(f"kept {_builds(len(pruned.in_use))} that a running edgekit works with")

    console.report(pruned, render)


def _builds(count: int) -> str:
    return "1 build" if count == 1 else f"{count} builds"
