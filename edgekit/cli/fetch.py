"""edgekit fetch: fetch a bundle from an OCI registry and verify it."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.base.wording import size
from edgekit.cli.console import Console
from edgekit.cli.options import BOARD, Command, json_option, pass_console, plain_http_option

_SHOWN_DIGEST = 12


@click.command("fetch", cls=Command)
@click.argument("address", metavar="oci://HOST[:PORT]/NAME:TAG")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="The folder to write. A bundle in it is replaced.",
)
@click.option(
    "--key",
    metavar="NAME|FILE",
    help="The publisher's public key: a name, or a .pub file.  [default: the only one]",
)
@click.option("--board", type=BOARD, metavar="NAME", help="Refuse a bundle for another board.")
@plain_http_option
@json_option
@pass_console
def command(
    console: Console,
    address: str,
    out: Path,
    key: str | None,
    board: str | None,
    plain_http: bool,
) -> None:
    """Fetch a bundle from an OCI registry and verify it: signature, board, every file.

    What is older than what was fetched before is refused. What is refused leaves no file.
    """
    done = console.workspace.fetch(address, out, key=key, board=board, plain_http=plain_http)

    def render() -> None:
        console.heading(f"{done.model} for {done.board}, signed by {done.key} ({done.key_id})")
        console.fields(
            [
                ("folder", done.path),
                ("digest", done.digest[:_SHOWN_DIGEST]),
                ("publication", done.counter),
                ("received", f"{size(done.received)} of {size(done.total)}"),
                ("next", f"edgekit verify {done.path}"),
            ]
        )

    console.report(done, render)
