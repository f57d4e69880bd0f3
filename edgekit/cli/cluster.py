"""edgekit cluster: certificates, schedulers and workers of a cluster that compiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import UsageError
from edgekit.cli.console import Console
from edgekit.cli.options import Group, json_option, pass_console

if TYPE_CHECKING:
    from edgekit.cluster.certificates import Credentials, Role
    from edgekit.cluster.serving import Serving

_certificates = click.option(
    "--certificates",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of the certificates.  [default: the user's own]",
)
_from_input = click.option(
    "--credentials-from-input",
    "from_input",
    is_flag=True,
    help="Read the certificate from the standard input, and end with it.",
)


@click.group("cluster", cls=Group)
def command() -> None:
    """Run a cluster that compiles: a scheduler, and workers on any hosts.

    \b
    edgekit cluster init                          certificates for all ends
    edgekit cluster scheduler                     one host
    edgekit cluster worker tls://HOST:8786        other hosts
    edgekit tune MODEL --cluster tls://HOST:8786  the host with the devices
    """


@command.command("init")
@click.argument("folder", type=click.Path(path_type=Path), required=False, metavar="[DIR]")
@click.option("--again", is_flag=True, help="Replace the certificates that are there.")
@json_option
@pass_console
def init(console: Console, folder: Path | None, again: bool) -> None:
    """Make the certificates of a cluster. Who has one can run code on its workers."""
    from edgekit.cluster.certificates import init as make

    made = make(folder, again=again)

    def render() -> None:
        console.heading(f"certificates in {made.folder}, until {made.valid_until}")
        console.fields(
            [
                ("the scheduler needs", "ca.crt, scheduler.crt, scheduler.key"),
                ("a worker needs", "ca.crt, worker.crt, worker.key"),
                ("this host needs", "ca.crt, client.crt, client.key"),
            ]
        )

    console.report(made, render)


@command.command("scheduler")
@click.option(
    "--listen",
    default="127.0.0.1:8786",
    show_default=True,
    metavar="HOST:PORT",
    help="The address for workers and clients; port 0 is any free one.",
)
@click.option(
    "--dashboard",
    type=click.IntRange(1, (1 << 16) - 1),
    metavar="PORT",
    help="Serve Dask's dashboard on this port of the loopback.",
)
@_certificates
@_from_input
@json_option
@pass_console
def scheduler(
    console: Console,
    listen: str,
    dashboard: int | None,
    certificates: Path | None,
    from_input: bool,
) -> None:
    """Run a cluster's scheduler until Ctrl-C."""
    from edgekit.api.cluster import need_dask

    need_dask()
    from edgekit.cluster.serving import run_scheduler

    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{listen!r} is no address", hint="write HOST:PORT")

    def started(serving: Serving) -> None:
        if console.as_json:
            console.json_line(serving)
            return
        console.print(f"the scheduler is at {serving.address}, until Ctrl-C")
        if serving.dashboard:
            console.print(f"its dashboard is at {serving.dashboard}")

    credentials = _credentials("scheduler", certificates, from_input)
    run_scheduler(listen, credentials, started, dashboard=dashboard, until_input_ends=from_input)


@command.command("worker")
@click.argument("address", metavar="tls://HOST:PORT")
@click.option(
    "--lanes",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Tasks at the same time.  [default: one for each core]",
)
@click.option("--name", metavar="NAME", help="The worker's name.  [default: its address]")
@_certificates
@_from_input
@pass_console
def worker(
    console: Console,
    address: str,
    lanes: int | None,
    name: str | None,
    certificates: Path | None,
    from_input: bool,
) -> None:
    """Compile for a cluster until Ctrl-C. This host then runs what its clients send."""
    from edgekit.api.cluster import need_dask

    need_dask()
    from edgekit.cluster.place import Running, parse_place
    from edgekit.cluster.serving import run_worker

    place = parse_place(address, Path())
    if not isinstance(place, Running):
        raise UsageError(f"{address!r} is no scheduler's address", hint="write tls://HOST:PORT")
    credentials = _credentials("worker", certificates, from_input)
    run_worker(
        *(place.address, lanes, name, credentials, console.events), until_input_ends=from_input
    )


def _credentials(role: Role, folder: Path | None, from_input: bool) -> Credentials:
    from edgekit.cluster.certificates import read_credentials
    from edgekit.cluster.serving import credentials_from_input

    return credentials_from_input() if from_input else read_credentials(role, folder)
