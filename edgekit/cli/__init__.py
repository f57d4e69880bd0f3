"""The command line: a table of commands, each imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import click

from edgekit.cli.help_text import HELP_NAMES, write_options
from edgekit.cli.options import Group, add_global_flags
from edgekit.version import __version__


@dataclass(frozen=True)
class Entry:
    """A command: its name, the module that defines `command`, and one line of help."""

    name: str
    module: str
    help: str


GROUPS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "First steps",
        (
            Entry("init", "edgekit.cli.init", "Write a project file, edgekit.toml."),
            Entry("doctor", "edgekit.cli.doctor", "Show what this host lacks to build models."),
            Entry("inspect", "edgekit.cli.inspect", "Show what a model or a bundle contains."),
            Entry("deploy", "edgekit.cli.deploy", "Build, run on a device, verify and time."),
        ),
    ),
    (
        "Models",
        (
            Entry("build", "edgekit.cli.build", "Compile a model for a board, as a bundle."),
            Entry("run", "edgekit.cli.run", "Show a bundle's outputs for an input."),
            Entry("verify", "edgekit.cli.verify", "Compare a bundle's outputs with the oracle's."),
            Entry("evaluate", "edgekit.cli.evaluate", "Measure accuracy on a data set."),
            Entry("debug", "edgekit.cli.debug", "Find the first layer that is off on a device."),
            Entry("quantize", "edgekit.cli.quantize", "Quantize a float model to int8."),
            Entry("partition", "edgekit.cli.partition", "Show which library runs what, and why."),
            Entry("recommend", "edgekit.cli.recommend", "Recommend how to run a model on a board."),
            Entry("export", "edgekit.cli.export", "Generate a C++ application from a bundle."),
        ),
    ),
    (
        "Measuring",
        (
            Entry("bench", "edgekit.cli.bench", "Time a bundle on a device."),
            Entry("mlperf", "edgekit.cli.mlperf", "Run MLPerf's LoadGen on a device."),
            Entry("tune", "edgekit.cli.tune", "Search for faster kernels on devices."),
            Entry("results", "edgekit.cli.results", "Show, compare and export measurements."),
            Entry("report", "edgekit.cli.report", "Write one page with all pictures."),
        ),
    ),
    (
        "Boards and devices",
        (
            Entry("boards", "edgekit.cli.boards", "List, show, create or check board profiles."),
            Entry(
                "toolchains", "edgekit.cli.toolchains", "List, show, create or check toolchains."
            ),
            Entry("device", "edgekit.cli.device", "Add, list, check, clean and remove devices."),
            Entry("twin", "edgekit.cli.twin", "Start and stop emulated boards."),
            Entry("flash", "edgekit.cli.flash", "Write firmware to a microcontroller."),
            Entry("monitor", "edgekit.cli.monitor", "Show a microcontroller's serial messages."),
            Entry("versions", "edgekit.cli.versions", "List what was deployed to a device."),
            Entry("rollback", "edgekit.cli.rollback", "Roll back to the previous version."),
            Entry("logs", "edgekit.cli.logs", "Show what happened on a device."),
        ),
    ),
    (
        "Registries",
        (
            Entry("keys", "edgekit.cli.keys", "Make and list the keys that sign bundles."),
            Entry("publish", "edgekit.cli.publish", "Put a bundle into an OCI registry, signed."),
            Entry("fetch", "edgekit.cli.fetch", "Fetch a bundle from a registry and verify it."),
            Entry("rollout", "edgekit.cli.rollout", "Give a bundle to a growing share of boards."),
        ),
    ),
    (
        "Farm",
        (
            Entry("farm", "edgekit.cli.farm", "Share all devices as one monitored pool."),
            Entry("cluster", "edgekit.cli.cluster", "Compile on the workers of other hosts."),
            Entry("rpc", "edgekit.cli.rpc", "Serve devices to TVM's own RPC clients."),
        ),
    ),
    (
        "Upkeep",
        (
            Entry("trust", "edgekit.cli.trust", "Trust what a project's files run and send."),
            Entry("cache", "edgekit.cli.cache", "Show and prune cached builds and twin images."),
            Entry("completion", "edgekit.cli.completion", "Print the shell completion script."),
            Entry("help", "edgekit.cli.help", "Show the help of a command."),
        ),
    ),
)
"""All commands by group, in the order in which a newcomer needs them."""

COMMANDS = tuple(entry for _, entries in GROUPS for entry in entries)


class CommandTable(Group):
    """Answers --help from the table, so that it imports no command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for entry in COMMANDS:
            if entry.name == cmd_name:
                command = import_module(entry.module).command
                assert isinstance(command, click.Command)
                return add_global_flags(command)
        return None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(len(entry.name) for entry in COMMANDS)
        for title, entries in GROUPS:
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(widest), entry.help) for entry in entries])
        write_options(self, ctx, formatter)


@click.command("edgekit", cls=CommandTable, context_settings=HELP_NAMES)
@click.version_option(__version__, prog_name="edgekit", message="%(prog)s %(version)s")
def root() -> None:
    """Compile a trained model, run it on a board, and verify its outputs.

    \b
    edgekit deploy MODEL --board local   build, run on this host, verify and time
    edgekit boards                       list the boards to build for
    edgekit help deploy                  explain a command
    """


add_global_flags(root)
