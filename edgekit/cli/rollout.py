"""edgekit rollout: give a published bundle to a growing share of a channel's boards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.console import Console
from edgekit.cli.options import (
    Decorator,
    Group,
    board_option,
    json_option,
    pass_console,
    plain_http_option,
)

if TYPE_CHECKING:
    from edgekit.registry.rollout import Move, Rollout, Version

_SHOWN_DIGEST = 12

_channel_option: Decorator = click.option(
    "--channel", required=True, metavar="NAME", help="The boards that the rollout is for."
)
_signing_option: Decorator = click.option(
    "--key", metavar="NAME", help="The key that signs, by its name.  [default: the only one]"
)
_repository_argument: Decorator = click.argument("repository", metavar="oci://HOST[:PORT]/NAME")


@dataclass(frozen=True)
class RolloutReport:
    rollout: Rollout
    share: float
    """The share of the channel that may have the version, from 0 to 1."""
    version: Version | None
    """What the board that was asked about takes."""


@click.group("rollout", cls=Group)
def command() -> None:
    """Give a published bundle to a growing share of a channel's boards.

    A signed document in the registry says which share takes which bundle.
    """


@command.command("start")
@click.argument("address", metavar="oci://HOST[:PORT]/NAME:TAG")
@_channel_option
@click.option(
    "--waves", default="1%,10%,100%", show_default=True, help="The share of each wave, in order."
)
@_signing_option
@plain_http_option
@json_option
@pass_console
def start(
    console: Console, address: str, channel: str, waves: str, key: str | None, plain_http: bool
) -> None:
    """Begin to roll out the bundle of a tag, with the first wave."""
    _report(
        console,
        console.workspace.start_rollout(
            address, channel, waves=waves, key=key, plain_http=plain_http
        ),
    )


@command.command("status")
@_repository_argument
@_channel_option
@click.option("--name", "board", metavar="NAME", help="Show what the board of this name takes.")
@click.option(
    "--key",
    metavar="NAME|FILE",
    help="The publisher's public key: a name, or a .pub file.  [default: the only one]",
)
@plain_http_option
@json_option
@pass_console
def status(
    console: Console,
    repository: str,
    channel: str,
    board: str | None,
    key: str | None,
    plain_http: bool,
) -> None:
    """Show how far a rollout is."""
    _report(
        console,
        console.workspace.rollout(repository, channel, key=key, plain_http=plain_http),
        board,
    )


@command.command("follower")
@_repository_argument
@_channel_option
@board_option
@click.option(
    "--out",
    "-o",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The new folder.",
)
@click.option(
    "--key",
    metavar="NAME|FILE",
    help="The publisher's public key: a name, or a .pub file.  [default: the only one]",
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="The time between two questions of a board, which asks up to as much later.",
)
@plain_http_option
@json_option
@pass_console
def follower(
    console: Console,
    repository: str,
    channel: str,
    board_name: str | None,
    out: Path,
    key: str | None,
    minutes: int,
    plain_http: bool,
) -> None:
    """Write what a board needs to follow a channel by itself.

    FOLDER gets a program for the board, the public key, and a service of systemd with its timer.
    """
    done = console.workspace.follower(
        repository,
        channel,
        out,
        board=board_name,
        key=key,
        minutes=minutes,
        plain_http=plain_http,
    )

    def render() -> None:
        console.heading(f"{done.path} holds what a {done.board} needs to follow {done.channel}")
        console.fields([("files", ", ".join(done.files))])

    console.report(done, render)


def _mover(move: Move, help_text: str) -> None:
    @command.command(move, help=help_text)
    @_repository_argument
    @_channel_option
    @_signing_option
    @plain_http_option
    @json_option
    @pass_console
    def move_command(
        console: Console, repository: str, channel: str, key: str | None, plain_http: bool
    ) -> None:
        _report(
            console,
            console.workspace.move_rollout(
                repository, channel, move, key=key, plain_http=plain_http
            ),
        )


_mover("next", "Go on to the next wave.")
_mover("pause", "Pause a rollout: it stays at its share until it is resumed.")
_mover("resume", "Resume a paused rollout.")
_mover("back", "Take a rollout back: all boards return to the version before.")


def _report(console: Console, rollout: Rollout, board: str | None = None) -> None:
    from edgekit.registry.rollout import ALL

    taken = rollout.version_for(board) if board else None
    report = RolloutReport(rollout, rollout.share / ALL, taken)

    def render() -> None:
        console.heading(f"channel {rollout.channel}: {rollout.state}")
        console.fields(
            [
                ("version", _shown(rollout.version)),
                ("before", rollout.before and _shown(rollout.before)),
                ("share", f"{rollout.share / 100:g} %"),
                ("wave", f"{rollout.wave + 1} of {len(rollout.waves)}"),
                ("number", rollout.counter),
            ]
        )
        if board:
            console.fields([(board, "takes nothing yet" if taken is None else _shown(taken))])

    console.report(report, render)


def _shown(version: Version) -> str:
    return f"{version.tag} ({version.manifest[:_SHOWN_DIGEST]}, {version.board})"
