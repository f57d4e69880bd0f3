"""The command line: a table of commands, each imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import click

from edgekit.cli.options import Group, add_global_flags
from edgekit.version import __version__


@dataclass(frozen=True)
class Entry:
    """A command: its name, the module that defines `command`, and one line of help."""

    name: str
    module: str
    help: str


COMMANDS: tuple[Entry, ...] = (
    Entry("init", "edgekit.cli.init", "Write a project file, edgekit.toml."),
    Entry("inspect", "edgekit.cli.inspect", "Show what is in a model and whether it can be built."),
    Entry("deploy", "edgekit.cli.deploy", "Build, run on a device and verify the outputs."),
    Entry("build", "edgekit.cli.build", "Build a model into a bundle for a board."),
    Entry("recommend", "edgekit.cli.recommend", "Recommend how to run a model on a board."),
    Entry("partition", "edgekit.cli.partition", "Show what runs each part of a model, and why."),
    Entry("run", "edgekit.cli.run", "Show a bundle's outputs for an input."),
    Entry("verify", "edgekit.cli.verify", "Compare a bundle's outputs with the oracle's."),
    Entry("bench", "edgekit.cli.bench", "Time a bundle."),
    Entry("tune", "edgekit.cli.tune", "Search for faster kernels on devices."),
    Entry("quantize", "edgekit.cli.quantize", "Quantize a float model to int8, with the cost."),
    Entry("flash", "edgekit.cli.flash", "Write a bundle's firmware to a microcontroller."),
    Entry("monitor", "edgekit.cli.monitor", "Show what a microcontroller's serial line carries."),
    Entry("results", "edgekit.cli.results", "Show, compare, export and import measurements."),
    Entry("export", "edgekit.cli.export", "Generate a C++ application from a bundle."),
    Entry("boards", "edgekit.cli.boards", "List, show, create or check board profiles."),
    Entry(
        "toolchains", "edgekit.cli.toolchains", "List, show, create or check toolchain profiles."
    ),
    Entry("device", "edgekit.cli.device", "Add, list, check, clean and remove devices."),
    Entry("versions", "edgekit.cli.versions", "List what was deployed to a device."),
    Entry("rollback", "edgekit.cli.rollback", "Roll back to the previous version."),
    Entry("logs", "edgekit.cli.logs", "Show what happened on a device."),
    Entry("rpc", "edgekit.cli.rpc", "Serve devices over TVM's RPC, with a tracker."),
    Entry("farm", "edgekit.cli.farm", "Run all devices as one monitored pool."),
    Entry("trust", "edgekit.cli.trust", "Trust what a project's files run and send."),
    Entry("doctor", "edgekit.cli.doctor", "Show what this host lacks to build for a board."),
    Entry("twin", "edgekit.cli.twin", "Start and stop emulated boards."),
    Entry("cache", "edgekit.cli.cache", "Show and prune cached builds and twin images."),
    Entry("completion", "edgekit.cli.completion", "Print the shell completion script."),
)
"""All commands, in the order in which a newcomer needs them."""


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in COMMANDS])


@click.command("edgekit", cls=CommandTable)
@click.version_option(__version__, prog_name="edgekit", message="%(prog)s %(version)s")
def root() -> None:
    """Compile a trained model, run it on a board, and verify its outputs.

    \b
    edgekit deploy MODEL --board local    build, run on this host, compare with the oracle
    edgekit build MODEL --board rpi4 -o DIR
    """


add_global_flags(root)
