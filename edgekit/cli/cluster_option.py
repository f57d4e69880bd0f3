"""The option that lets a cluster compile."""

from __future__ import annotations

import click

from edgekit.cli.options import Decorator

cluster_option: Decorator = click.option(
    "--cluster",
    metavar="ADDRESS|ssh:FILE|local:N",
    help="Compile on a cluster: tls://HOST:PORT, hosts in a file, or N workers here.",
)
