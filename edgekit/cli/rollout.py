"""edgekit rollout: give a published bundle to a growing share of a channel's boards."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import DevicesFailedError
from edgekit.base.wording import counted, duration
from edgekit.cli.console import Console
from edgekit.cli.options import (
    Decorator,
    Group,
    board_option,
    json_option,
    pass_console,
    plain_http_option,
)
from edgekit.cli.tune_options import Time

if TYPE_CHECKING:
    from edgekit.registry.collector import Collecting
    from edgekit.registry.rollout import Move, Rollout, Version
    from edgekit.registry.tending import Tally, Tended

_SHOWN_DIGEST = 12
_COLLECTOR_PORT = 9191
_PORT = click.IntRange(0, (1 << 16) - 1)

_channel_option: Decorator = click.option(
    "--channel", required=True, metavar="NAME", help="The boards that the rollout is for."
)
_signing_option: Decorator = click.option(
    "--key", metavar="NAME", help="The key that signs, by its name.  [default: the only one]"
)
_reports_option: Decorator = click.option(
    "--reports",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of boards' reports.  [default: one in the data folder]",
)
_repository_argument: Decorator = click.argument("repository", metavar="oci://HOST[:PORT]/NAME")


@dataclass(frozen=True)
class RolloutReport:
    rollout: Rollout
    share: float
    """The share of the channel that may have the version, from 0 to 1."""
    version: Version | None
    """What the board that was asked about takes."""
    tally: Tally | None
    """What boards report; None where it was not asked for."""


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
@click.option(
    "--healthy-after",
    type=Time(),
    metavar="TIME",
    help="Begin the next wave once one was healthy for so long (1h), by `edgekit rollout tend`.  "
    "[default: waves begin by hand]",
)
@click.option(
    "--max-failures",
    metavar="SHARE",
    default="2%",
    show_default=True,
    help="Stop if more of the boards that reported failed, by `edgekit rollout tend`.",
)
@_signing_option
@plain_http_option
@json_option
@pass_console
def start(
    console: Console,
    address: str,
    channel: str,
    waves: str,
    healthy_after: float | None,
    max_failures: str,
    key: str | None,
    plain_http: bool,
) -> None:
    """Begin to roll out the bundle of a tag, with the first wave."""
    _report(
        console,
        console.workspace.start_rollout(
            address,
            channel,
            waves=waves,
            healthy_after=healthy_after,
            max_failures=max_failures,
            key=key,
            plain_http=plain_http,
        ),
    )


@command.command("collect", short_help="Keep boards' reports until Ctrl-C.")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address of this machine to listen on.",
)
@click.option(
    "--port", type=_PORT, default=_COLLECTOR_PORT, show_default=True, help="0 takes a free one."
)
@click.option(
    "--token",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with the word that boards have to send; needed unless the address is loopback.",
)
@_reports_option
@json_option
@pass_console
def collect(
    console: Console, host: str, port: int, token: Path | None, reports: Path | None
) -> None:
    """Keep what boards report in a file, until Ctrl-C.

    `edgekit rollout status` and `tend` read the file. A server with TLS belongs in front of it.
    """
    from edgekit.registry.collector import collect_reports
    from edgekit.registry.reports import default_file

    def started(up: Collecting) -> None:
        console.report(
            up, lambda: console.print(f"reports to {up.url} are kept in {up.file}, until Ctrl-C")
        )

    collect_reports(
        reports or default_file(),
        host=host,
        port=port,
        token=token,
        started=started,
        events=console.events,
    )


@command.command("tend", short_help="Go on or stop by what boards report.")
@_repository_argument
@_channel_option
@click.option(
    "--every",
    type=Time(),
    metavar="TIME",
    help="Look again and again, until nothing more happens by itself.  [default: look once]",
)
@_reports_option
@_signing_option
@plain_http_option
@json_option
@pass_console
def tend(
    console: Console,
    repository: str,
    channel: str,
    every: float | None,
    reports: Path | None,
    key: str | None,
    plain_http: bool,
) -> None:
    """Begin the next wave of a rollout, or stop it, by what boards report.

    What a rollout waits for is said by `edgekit rollout start --healthy-after --max-failures`. With
    --every, --json prints a document a line. The exit code is 10 if the rollout has been stopped.
    """
    while True:
        done = console.workspace.tend_rollout(
            repository, channel, reports=reports, key=key, plain_http=plain_http
        )
        if not console.as_json:
            _render_tended(console, done)
        elif every is None:
            console.json(done)
        else:
            console.json_line(done)
        if every is None or done.is_over:
            break
        time.sleep(every)
    if done.rollout.state == "stopped":
        raise DevicesFailedError(
            f"the rollout of {done.rollout.version.tag} is stopped: "
            f"{done.tally.failed} of {counted(done.tally.reported, 'board')} failed",
            hint="edgekit rollout back returns all boards; resume goes on",
            details=tuple(f"{one.boards} x {one.text}" for one in done.tally.errors),
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
@_reports_option
@plain_http_option
@json_option
@pass_console
def status(
    console: Console,
    repository: str,
    channel: str,
    board: str | None,
    key: str | None,
    reports: Path | None,
    plain_http: bool,
) -> None:
    """Show how far a rollout is, and what boards report."""
    rollout = console.workspace.rollout(repository, channel, key=key, plain_http=plain_http)
    tally = console.workspace.rollout_reports(repository, rollout, reports=reports)
    _report(console, rollout, board, tally)


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
@click.option("--report", metavar="URL", help="Where the board sends what came of it.")
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
    report: str | None,
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
        report=report,
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


def _report(
    console: Console, rollout: Rollout, board: str | None = None, tally: Tally | None = None
) -> None:
    from edgekit.registry.rollout import ALL

    taken = rollout.version_for(board) if board else None
    report = RolloutReport(rollout, rollout.share / ALL, taken, tally)

    def render() -> None:
        _render(console, rollout)
        if board:
            console.fields([(board, "takes nothing yet" if taken is None else _shown(taken))])
        if tally is not None:
            _render_tally(console, tally)

    console.report(report, render)


def _render(console: Console, rollout: Rollout) -> None:
    after, limit = rollout.healthy_seconds, rollout.most_failures
    console.heading(f"channel {rollout.channel}: {rollout.state}")
    console.fields(
        [
            ("version", _shown(rollout.version)),
            ("before", rollout.before and _shown(rollout.before)),
            ("share", f"{rollout.share / 100:g} %"),
            ("wave", f"{rollout.wave + 1} of {len(rollout.waves)}"),
            ("next wave", "by hand" if after is None else f"healthy for {duration(after)}"),
            ("stops at", None if limit is None else f"more than {limit / 100:g} % failed"),
            ("number", rollout.counter),
        ]
    )


def _render_tally(console: Console, tally: Tally) -> None:
    if not tally.digests and not tally.reported:
        console.print("no board has reported")
        return
    time_of_one = tally.median_nanoseconds
    console.table(
        ["up to", "healthy", "failed"],
        [(f"{wave.share / 100:g} %", wave.healthy, wave.failed) for wave in tally.waves],
        right=["up to", "healthy", "failed"],
    )
    console.fields(
        [
            ("median", None if time_of_one is None else duration(time_of_one / 1e9)),
            *((f"on {one.text[:_SHOWN_DIGEST]}", one.boards) for one in tally.digests),
            *((f"{one.boards} failed", one.text) for one in tally.errors),
        ]
    )


def _render_tended(console: Console, done: Tended) -> None:
    _render(console, done.rollout)
    _render_tally(console, done.tally)
    what = {None: "nothing to do yet", "next": "the next wave begins", "stop": "stopped"}
    console.print(f"{'over' if done.is_over and not done.move else what[done.move]}: {done.reason}")


def _shown(version: Version) -> str:
    return f"{version.tag} ({version.manifest[:_SHOWN_DIGEST]}, {version.board})"
