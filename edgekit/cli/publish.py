"""edgekit publish: put a bundle into an OCI registry, signed."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.base.wording import size
from edgekit.cli.console import Console
from edgekit.cli.options import (
    Command,
    bundle_argument,
    json_option,
    pass_console,
    plain_http_option,
)

_SHOWN_DIGEST = 12


@click.command("publish", cls=Command)
@bundle_argument
@click.argument("address", metavar="oci://HOST[:PORT]/NAME:TAG")
@click.option(
    "--key", metavar="NAME", help="The key that signs, by its name.  [default: the only one]"
)
@plain_http_option
@json_option
@pass_console
def command(
    console: Console, bundle: Path, address: str, key: str | None, plain_http: bool
) -> None:
    """Put BUNDLE into an OCI registry, signed.

    Blobs that the registry has are not sent again. `edgekit keys new` makes a key.
    """
    done = console.workspace.publish(bundle, address, key=key, plain_http=plain_http)

    def render() -> None:
        console.heading(f"{done.address} {'holds' if done.is_new else 'held already'} the bundle")
        console.fields(
            [
                ("board", done.board),
                ("digest", done.digest[:_SHOWN_DIGEST]),
                ("publication", done.counter),
                ("signed by", f"{done.key} ({done.key_id})"),
                ("sent", f"{size(done.sent)} of {size(done.total)}"),
            ]
        )

    console.report(done, render)
