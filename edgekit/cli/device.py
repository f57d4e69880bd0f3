"""edgekit device: the devices that are known, and how they are."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import UsageError
from edgekit.base.wording import size
from edgekit.cli.console import Console
from edgekit.cli.options import (
    REMOTE_DEVICE,
    Group,
    board_option,
    json_option,
    pass_console,
)

if TYPE_CHECKING:
    from edgekit.devices.linux.hostkeys import Ask, KnownHosts, NewHostKey
    from edgekit.devices.linux.visit import CheckReport
    from edgekit.profiles.board import Board
    from edgekit.project.devices import DeviceEntry

_fingerprint_option = click.option(
    "--fingerprint",
    metavar="SHA256:…",
    help="The device's host key, as its own ssh-keygen -l prints it: then nothing is asked.",
)


@dataclass(frozen=True)
class ListedDevice:
    name: str
    board: str
    address: str | None
    """None where the entry names none."""
    twin: bool
    origin: Path


@dataclass(frozen=True)
class AddedDevice:
    device: CheckReport
    path: Path


@dataclass(frozen=True)
class AddedPort:
    """Nothing was asked of it: its firmware may be another one yet."""

    name: str
    board: str
    port: str
    host: str | None
    """Whose port it is, where not this machine's."""
    path: Path


@dataclass(frozen=True)
class CheckedPort:
    """Of another machine."""

    name: str
    board: str
    port: str
    host: str


@dataclass(frozen=True)
class RemovedDevice:
    name: str
    path: Path


@click.group("device", cls=Group)
def command() -> None:
    """Make devices known, look at them, tidy them up."""


@command.command("add")
@click.argument("name")
@click.argument("target", metavar="[[USER@]HOST[:PORT]]", required=False)
@board_option
@click.option(
    "--port",
    metavar="PORT",
    help="A microcontroller's serial port: /dev/ttyACM0, socket://host:port.",
)
@click.option(
    "--via",
    metavar="[USER@]HOST[:PORT]",
    help="The machine that has that port, where it is another one.",
)
@click.option(
    "--labgrid", "place", metavar="PLACE", help="The place of labgrid's that leads to it."
)
@click.option(
    "--baud",
    type=click.IntRange(1200, 12_000_000),
    metavar="N",
    help="Of that port.  [default: the board's]",
)
@click.option(
    "--probe", metavar="ID", help="Which debug probe writes to it, where several are attached."
)
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="The private key to log in with."
)
@click.option("--proxy", metavar="[USER@]HOST[:PORT]", help="A host to go through.")
@click.option("--directory", metavar="DIR", help="Where edgekit keeps its files over there.")
@_fingerprint_option
@click.option("--force", is_flag=True, help="Replace a device of that name.")
@json_option
@pass_console
def add_command(
    console: Console,
    name: str,
    target: str | None,
    board_name: str | None,
    port: str | None,
    via: str | None,
    place: str | None,
    baud: int | None,
    probe: str | None,
    key: Path | None,
    proxy: str | None,
    directory: str | None,
    fingerprint: str | None,
    force: bool,
) -> None:
    """Log in to a device over SSH, check it, and remember it as NAME.

    With --port the device is a microcontroller on a serial line, which need not be plugged in yet;
    with --via, on that of another machine. With --labgrid a place is acquired while the device is
    used, and released after.
    """
    from edgekit.devices.linux.hostkeys import check_fingerprint
    from edgekit.devices.linux.visit import check_device
    from edgekit.devices.registry import add_device, refuse_taken
    from edgekit.profiles.board import load_board
    from edgekit.project.devices import make_entry, make_labgrid_entry, make_serial_entry

    if board_name is None:
        raise UsageError(
            "no board is given", hint="add --board NAME; `edgekit boards` lists all boards"
        )
    board = load_board(board_name)
    if place is not None and (target or port or via or probe or proxy or directory):
        raise UsageError(
            "--labgrid says where the device is, and what else is given too",
            hint="leave one of them out",
        )
    if port is not None:
        if target is not None or directory or (via is None and (key or proxy or fingerprint)):
            raise UsageError(
                "--port is for a serial line, and what else is given for SSH",
                hint="leave one of them out; --via names another machine that has the port",
            )
        on_a_line = make_serial_entry(
            name,
            board.name,
            port,
            kind=board.kind,
            baud=baud,
            probe=probe,
            via=via,
            key=key,
            proxy=proxy,
        )
        expected = check_fingerprint(fingerprint) if fingerprint is not None else None
        _add_on_a_line(console, board, on_a_line, expected, force)
        return
    if place is not None and board.kind == "baremetal":
        _add_on_a_line(
            console, board, make_labgrid_entry(name, board.name, place, baud=baud), None, force
        )
        return
    if place is None and (target is None or via or baud or probe):
        raise UsageError(
            "it is not said where the device is",
            hint="give user@host, or --port /dev/ttyACM0 for a microcontroller",
        )
    if place is not None:
        entry = make_labgrid_entry(name, board.name, place, key=key)
    else:
        entry = make_entry(
            name,
            board.name,
            target or "",
            key=key,
            proxy=proxy,
            directory=directory,
            kind=board.kind,
        )
    refuse_taken(name, force)
    expected = check_fingerprint(fingerprint) if fingerprint is not None else None
    with console.events.stage(f"check {name}"):
        report = check_device(entry, arch=board.cpu.arch, ask=asker(console), fingerprint=expected)
    added = AddedDevice(report, add_device(entry, replace=force))

    def render() -> None:
        console.heading(f"{name} is known from now on")
        console.fields([*_fields(report), ("remembered in", added.path)])

    console.report(added, render)


def _add_on_a_line(
    console: Console, board: Board, entry: DeviceEntry, fingerprint: str | None, force: bool
) -> None:
    from edgekit.devices.registry import add_device, refuse_taken
    from edgekit.devices.serial.lab_host import LabHost, meet

    refuse_taken(entry.name, force)
    if entry.target is not None:
        with console.events.stage(f"log in to {entry.target}"):
            problem = meet(LabHost(entry), board, ask=asker(console), fingerprint=fingerprint)
        if problem is not None:
            console.events.warn(problem.message)
    added = AddedPort(
        entry.name,
        board.name,
        entry.serial or f"labgrid's place {entry.labgrid}",
        str(entry.target) if entry.target else None,
        add_device(entry, replace=force),
    )

    def render() -> None:
        console.heading(f"{entry.name} is known from now on")
        console.fields(
            [
                ("board", board.name),
                ("serial port", added.port),
                ("on", added.host),
                ("remembered in", added.path),
            ]
        )

    console.report(added, render)


@command.command("list")
@json_option
@pass_console
def list_command(console: Console) -> None:
    """List the devices that are known."""
    from edgekit.devices.registry import known_devices
    from edgekit.project.file import find_project

    devices = [
        ListedDevice(
            known.entry.name,
            known.entry.board,
            _address(known.entry),
            known.entry.twin,
            known.origin,
        )
        for known in known_devices(find_project(Path.cwd(), only_to_show=True)).values()
    ]

    def render() -> None:
        if not devices:
            console.print(
                "no devices are known; edgekit device add NAME --board BOARD user@host adds one"
            )
            return
        console.table(
            ("name", "board", "address", "known from"),
            [(d.name, d.board, "emulated" if d.twin else d.address, d.origin) for d in devices],
        )

    console.report(devices, render)


@command.command("check")
@click.argument("name", type=REMOTE_DEVICE)
@_fingerprint_option
@json_option
@pass_console
def check_command(console: Console, name: str, fingerprint: str | None) -> None:
    """Log in to a device and say whether models can be deployed to it."""
    from edgekit.devices.linux.hostkeys import check_fingerprint
    from edgekit.devices.linux.visit import check_device
    from edgekit.devices.registry import find_device, known_devices
    from edgekit.profiles.board import load_board
    from edgekit.project.file import find_project

    expected = check_fingerprint(fingerprint) if fingerprint is not None else None
    known = find_device(name, known_devices(find_project(Path.cwd()))).entry
    if known.serial is not None and known.target is not None:
        _check_far_line(console, known, expected)
        return
    entry, known_hosts = _reached(console, name)
    with console.events.stage(f"check {name}"):
        report = check_device(
            entry,
            arch=load_board(entry.board).cpu.arch,
            ask=asker(console),
            fingerprint=expected,
            known_hosts=known_hosts,
        )

    def render() -> None:
        console.heading(f"{name} is ready")
        console.fields(_fields(report))

    console.report(report, render)


def _check_far_line(console: Console, entry: DeviceEntry, fingerprint: str | None) -> None:
    from edgekit.devices.serial.lab_host import LabHost, meet
    from edgekit.profiles.board import load_board

    with console.events.stage(f"check {entry.name}"):
        problem = meet(
            LabHost(entry), load_board(entry.board), ask=asker(console), fingerprint=fingerprint
        )
        if problem is not None:
            raise problem
    checked = CheckedPort(entry.name, entry.board, entry.serial or "", str(entry.target))

    def render() -> None:
        console.heading(f"the serial port of {entry.name} is ready")
        console.fields(
            [("board", checked.board), ("serial port", checked.port), ("on", checked.host)]
        )

    console.report(checked, render)


@command.command("remove")
@click.argument("name", type=REMOTE_DEVICE)
@json_option
@pass_console
def remove_command(console: Console, name: str) -> None:
    """Forget a device. Nothing is changed on it."""
    from edgekit.devices.registry import forget_device
    from edgekit.project.file import find_project

    path = forget_device(name, find_project(Path.cwd(), only_to_show=True))
    removed = RemovedDevice(name, path)
    console.report(removed, lambda: console.print(f"{name} is not known any more"))


@command.command("clean")
@click.argument("name", type=REMOTE_DEVICE)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Keep the N models and agents used last.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Remove what is current there too, and the log."
)
@json_option
@pass_console
def clean_command(console: Console, name: str, keep: int, everything: bool) -> None:
    """Remove what edgekit put on a device; it is sent again when it is needed.

    What is current there stays, and its record, unless --all is given.
    """
    from edgekit.devices.linux.visit import clean_device

    if everything and keep:
        raise UsageError("--all keeps nothing", hint="leave --keep or --all out")
    entry, known_hosts = _reached(console, name)
    with console.events.stage(f"tidy up {name}"):
        report = clean_device(entry, keep=keep, everything=everything, known_hosts=known_hosts)

    def render() -> None:
        console.print(
            f"removed {report.models} models and {report.agents} agents from {name}, "
            f"{size(report.freed)}"
        )

    console.report(report, render)


def _reached(console: Console, name: str) -> tuple[DeviceEntry, KnownHosts | None]:
    """Where a device is, and who vouches for its host key; a twin is started."""
    from edgekit.devices.choice import device_for
    from edgekit.devices.linux.ssh import SshDevice
    from edgekit.devices.registry import find_device, known_devices
    from edgekit.profiles.board import load_board
    from edgekit.project.file import find_project

    entry = find_device(name, known_devices(find_project(Path.cwd()))).entry
    board = load_board(entry.board)
    if board.kind == "baremetal":
        raise UsageError(
            f"{name} is a microcontroller, and holds nothing but its firmware",
            hint=f"edgekit monitor --device {name} shows whether it answers",
        )
    if not entry.twin:
        return entry, None
    device = device_for(board, name, {name: entry}, events=console.events)
    assert isinstance(device, SshDevice)
    return device.entry, device.known_hosts


def _address(entry: DeviceEntry) -> str | None:
    if entry.labgrid is not None:
        return f"labgrid's place {entry.labgrid}"
    if entry.target is None or entry.serial is None:
        return str(entry.target) if entry.target else entry.serial
    return f"{entry.serial} on {entry.target}"


def asker(console: Console) -> Ask | None:
    """How a person is asked about a host key; None where nobody is there to ask."""
    if console.as_json or not (sys.stdin.isatty() and console.stderr.isatty()):
        return None

    def ask(met: NewHostKey) -> bool:
        console.close()
        return click.confirm(
            f"{met.host} shows a {met.kind} key that is not known yet:\n  {met.fingerprint}\n"
            "Is that what the device itself prints?",
            default=False,
            err=True,
        )

    return ask


def _fields(report: CheckReport) -> list[tuple[str, object]]:
    return [
        ("board", report.board),
        ("address", report.address),
        ("host key", report.fingerprint),
        ("machine", f"{report.machine}, Linux {report.kernel}, glibc {report.glibc or '-'}"),
        ("files in", report.folder),
        ("free space", None if report.free is None else size(report.free)),
        (
            "free memory",
            None if report.memory_available is None else size(report.memory_available),
        ),
    ]
