"""The command line: a table of commands, each imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import click

from edgekit.cli.options import Group, add_global_flags
from edgekit.version import __version__


@dataclass(frozen=True)
class Entry:
    """A command, the module whose `command` it is, and what it does in one line."""

    name: str
    module: str
    help: str


COMMANDS: tuple[Entry, ...] = (
    Entry("init", "edgekit.cli.init", "Write a project file, edgekit.toml."),
    Entry("inspect", "edgekit.cli.inspect", "Show what is in a model and whether it can be built."),
    Entry("deploy", "edgekit.cli.deploy", "Build, run on a device, prove that it is right."),
    Entry("build", "edgekit.cli.build", "Make a bundle out of a model for a board."),
    Entry("recommend", "edgekit.cli.recommend", "Say which way to take with a model on a board."),
    Entry("partition", "edgekit.cli.partition", "Show who runs which part of a model, and why."),
    Entry("run", "edgekit.cli.run", "Show a bundle's outputs for an input."),
    Entry("verify", "edgekit.cli.verify", "Compare a bundle's outputs with the oracle's."),
    Entry("bench", "edgekit.cli.bench", "Time a bundle."),
    Entry("tune", "edgekit.cli.tune", "Search for faster kernels on devices; builds use them."),
    Entry("quantize", "edgekit.cli.quantize", "Make a float model one in int8, with its cost."),
    Entry("flash", "edgekit.cli.flash", "Write a bundle's firmware to a microcontroller."),
    Entry("monitor", "edgekit.cli.monitor", "Show what a microcontroller's serial line carries."),
    Entry("results", "edgekit.cli.results", "Show, compare and carry what was measured."),
    Entry("export", "edgekit.cli.export", "Make a bundle the beginning of an application."),
    Entry("boards", "edgekit.cli.boards", "List, show, make or check board profiles."),
    Entry("toolchains", "edgekit.cli.toolchains", "List, show, make or check toolchain profiles."),
    Entry("device", "edgekit.cli.device", "Make devices known, look at them, tidy them up."),
    Entry("versions", "edgekit.cli.versions", "List what was deployed to a device."),
    Entry("rollback", "edgekit.cli.rollback", "Make the version before current again."),
    Entry("logs", "edgekit.cli.logs", "Show what happened on a device."),
    Entry("rpc", "edgekit.cli.rpc", "Let devices serve TVM's RPC, with a tracker."),
    Entry("farm", "edgekit.cli.farm", "All devices as one pool, watched over."),
    Entry("trust", "edgekit.cli.trust", "Agree to what a project's files run and send."),
    Entry("doctor", "edgekit.cli.doctor", "Show what a board needs here and how to get it."),
    Entry("twin", "edgekit.cli.twin", "Start and stop emulated boards."),
    Entry("cache", "edgekit.cli.cache", "Show and tidy what builds and twins' images take up."),
    Entry("completion", "edgekit.cli.completion", "Print the script that completes with Tab."),
)
"""In the order in which a newcomer meets them."""


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
    """From a trained model to a board that runs it, proven.

    \b
    edgekit deploy MODEL --board local    build, run here, compare with the oracle
    edgekit build MODEL --board rpi4 -o DIR
    """


add_global_flags(root)
