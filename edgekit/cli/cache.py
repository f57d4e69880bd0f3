"""edgekit cache: show and prune cached builds, libraries and twin images."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import click

from edgekit.base.cache import CacheEntry
from edgekit.base.errors import UsageError
from edgekit.base.wording import counted, duration, size
from edgekit.cli.console import Console
from edgekit.cli.options import Group, csv_option, json_option, pass_console

_AGE = re.compile(r"([0-9]{1,6})\s*(s|m|h|d|w)")
_AGE_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


@dataclass(frozen=True)
class KindSize:
    kind: str
    entries: int
    size: int
    """Bytes."""


@dataclass(frozen=True)
class CacheSize:
    path: str
    entries: int
    size: int
    """Bytes."""
    kinds: tuple[KindSize, ...]


def parse_age(text: str) -> int:
    """Return the seconds of an age such as 30d, 12h or 2w."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an age", hint="write 30d, 12h or 2w")
    return int(match[1]) * _AGE_UNITS[match[2]]


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 2GB, 500 MiB or 0."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size", hint="write 2GB, 500MB or 1GiB")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _age_option(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_age(text)


def _size_option(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | None:
    return None if text is None else parse_size(text)


@click.group("cache", cls=Group)
def command() -> None:
    """Show and prune the cache of builds, libraries and twin images."""


@command.command("size")
@json_option
@pass_console
def size_command(console: Console) -> None:
    """Show where the cache is and how large it is."""
    from edgekit.base.paths import cache_dir
    from edgekit.building.cached import cached_entries

    entries = cached_entries()
    kinds = tuple(
        KindSize(kind, len(sizes), sum(sizes))
        for kind in sorted({entry.kind for entry in entries})
        for sizes in [[entry.size for entry in entries if entry.kind == kind]]
    )
    total = CacheSize(str(cache_dir()), len(entries), sum(entry.size for entry in entries), kinds)

    def render() -> None:
        of_kinds = [(kind.kind, f"{kind.entries}, {size(kind.size)}") for kind in kinds]
        console.fields([("path", total.path), *of_kinds, ("size", size(total.size))])

    console.report(total, render)


@command.command("list")
@csv_option
@json_option
@pass_console
def list_command(console: Console) -> None:
    """List cached builds, libraries and twin images, the most recently used first."""
    from edgekit.building.cached import cached_entries

    entries = cached_entries()
    now = time.time()

    def render() -> None:
        if not entries:
            console.print("the cache is empty")
            return
        console.listing(
            ("key", "kind", "size", "last used", "what"),
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
            right=("size",),
        )

    console.report(entries, render)


@command.command("prune")
@click.option(
    "--older-than",
    metavar="AGE",
    callback=_age_option,
    help="Remove entries unused for this long: 30d, 12h.",
)
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=_size_option,
    help="Remove the least recently used entries until the cache is this small: 2GB.",
)
@click.option("--all", "everything", is_flag=True, help="Remove everything.")
@json_option
@pass_console
def prune_command(
    console: Console, older_than: int | None, max_size: int | None, everything: bool
) -> None:
    """Remove cached builds, libraries and twin images. They are built again when needed.

    An image stays as long as a twin uses it: edgekit twin down NAME --delete.
    """
    from edgekit.building.cached import prune_cached

    if everything:
        max_size = 0
    elif older_than is None and max_size is None:
        raise UsageError(
            "edgekit cache prune was not told what to remove",
            hint="add --older-than 30d, --max-size 2GB or --all",
        )
    pruned = prune_cached(older_than=older_than, max_bytes=max_size)

    def render() -> None:
        console.print(f"removed {_counted(pruned.removed)}, {size(pruned.freed)}")
        if pruned.in_use:
            console.print(f"kept what is in use: {_counted(pruned.in_use)}")

    console.report(pruned, render)


def _counted(entries: Sequence[CacheEntry]) -> str:
    """Return counts by kind, such as `2 builds, 1 twin image`."""
    kinds = Counter("build" if entry.kind == "unpacked" else entry.kind for entry in entries)
    counts = [counted(count, kind) for kind, count in sorted(kinds.items())]
    return ", ".join(counts) or "nothing"
