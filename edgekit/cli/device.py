"""edgekit device: add, list, check, clean and remove devices, and work on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from edgekit.base.errors import UsageError
from edgekit.base.measurer import Measurer, beside
from edgekit.base.wording import counted, size
from edgekit.cli.ask import can_ask, confirmed
from edgekit.cli.console import Console
from edgekit.cli.device_options import Login, fingerprint_option, login_options
from edgekit.cli.device_work import (
    exec_command,
    provision_command,
    pull_command,
    push_command,
    shell_command,
)
from edgekit.cli.options import (
    REMOTE_DEVICE,
    Group,
    board_option,
    grouped,
    json_option,
    pass_console,
)

if TYPE_CHECKING:
    from edgekit.devices.device import Device
    from edgekit.devices.linux.hostkeys import Ask, NewHostKey
    from edgekit.devices.linux.visit import CheckReport
    from edgekit.devices.power import PowerAction
    from edgekit.profiles.board import Board
    from edgekit.project.devices import DeviceEntry, LineEntry, PlaceEntry

    EntryT = TypeVar("EntryT", bound=DeviceEntry)


@dataclass(frozen=True)
class ListedDevice:
    name: str
    board: str
    address: str | None
    """The address; None if the entry has none."""
    twin: bool
    measured_by: Measurer | None
    """What its times come from; None until the device was asked."""
    origin: Path
    profile: Path | None
    """The board's profile, if a folder holds it that is not always searched."""
    problem: str | None
    """What is wrong with the profile; the device cannot be used if it is gone."""


@dataclass(frozen=True)
class AddedDevice:
    device: CheckReport
    path: Path


@dataclass(frozen=True)
class AddedPort:
    """A serial device that was added without contacting its firmware."""

    name: str
    board: str
    port: str
    host: str | None
    """The host with the port; None for this host."""
    path: Path


@dataclass(frozen=True)
class RemovedDevice:
    name: str
    path: Path


@click.group("device", cls=Group)
def command() -> None:
    """Add, list, check, clean and remove devices; run commands and copy files on them."""


for _work in (exec_command, push_command, pull_command, shell_command, provision_command):
    command.add_command(_work)


@dataclass(frozen=True)
class _Address:
    """Where a device is: a host, a serial line, or a place of labgrid."""

    target: str | None
    port: str | None
    via: str | None
    place: str | None
    baud: int | None
    probe: str | None
    directory: str | None
    power: str | None

    def complete(self, entry: EntryT, board: Board) -> EntryT:
        """Add the power switch, and the board's profile, to an entry."""
        from edgekit.project.power import parse_power
        from edgekit.project.user_devices import with_profile

        if self.power is not None:
            parse_power(self.power, self.place)
        return with_profile(replace(entry, power=self.power), board)


_address_options = grouped(
    "address",
    _Address,
    click.argument("target", metavar="[[USER@]HOST[:PORT]]", required=False),
    click.option(
        "--port",
        metavar="PORT",
        help="A microcontroller's serial port: /dev/ttyACM0, socket://host:port.",
    ),
    click.option(
        "--via",
        metavar="[USER@]HOST[:PORT]",
        help="The host with that port, if it is not this one.",
    ),
    click.option("--labgrid", "place", metavar="PLACE", help="The labgrid place of the device."),
    click.option(
        "--baud",
        type=click.IntRange(1200, 12_000_000),
        metavar="N",
        help="Baud rate of that port.  [default: the board's]",
    ),
    click.option("--probe", metavar="ID", help="The debug probe to use, if several are attached."),
    click.option(
        "--directory", metavar="DIR", help="The folder for edgekit's files on the device."
    ),
    click.option(
        "--power",
        metavar="SWITCH",
        help="What switches its power: usb:HUB/PORT, snmp:apc@HOST/OUTLET, labgrid, sh:COMMAND.",
    ),
)


@command.command("add")
@click.argument("name")
@board_option
@_address_options
@login_options
@click.option("--force", is_flag=True, help="Replace a device with that name.")
@json_option
@pass_console
def add_command(
    console: Console,
    name: str,
    board_name: str | None,
    address: _Address,
    login: Login,
    force: bool,
) -> None:
    """Log in to a device over SSH, check it, and remember it as NAME.

    With --port the device is a microcontroller on a serial line, which need not be plugged in yet.
    With --via the line is on another host. With --labgrid the place is acquired for each use of
    the device and released after it.
    """
    from edgekit.devices.linux.visit import check_device
    from edgekit.devices.registry import add_device, refuse_taken
    from edgekit.project.devices import make_entry, make_line_entry, make_login, make_place_entry

    if board_name is None:
        raise UsageError(
            "no board is given", hint="add --board NAME; `edgekit boards` lists all boards"
        )
    board = console.workspace.data.board(board_name)
    target, via, place = address.target, address.via, address.place
    of_line, of_ssh = via or address.probe, login.proxy or address.directory
    if place is not None and (target or address.port or of_line or of_ssh):
        raise UsageError(
            "--labgrid cannot be combined with another address of the device",
            hint="leave one of them out",
        )
    if address.port is not None:
        if target is not None or address.directory or (via is None and any(vars(login).values())):
            raise UsageError(
                "--port is for a serial line, and the other options are for SSH",
                hint="leave one of them out; --via names another host with the port",
            )
        host = None if via is None else make_login(name, board.name, via, login.key, login.proxy)
        line = make_line_entry(
            name, board, address.port, via=host, baud=address.baud, probe=address.probe
        )
        _add_on_a_line(console, board, address.complete(line, board), login.expected(), force)
        return
    if place is not None and not board.has_os:
        at_place = make_place_entry(name, board, place, baud=address.baud)
        _add_on_a_line(console, board, address.complete(at_place, board), None, force)
        return
    if place is None and (target is None or of_line or address.baud):
        raise UsageError(
            "no address of the device is given",
            hint="give user@host, or --port /dev/ttyACM0 for a microcontroller",
        )
    entry = (
        make_place_entry(name, board, place, key=login.key)
        if place is not None
        else make_entry(
            name,
            board,
            target or "",
            key=login.key,
            proxy=login.proxy,
            directory=address.directory,
        )
    )
    entry = address.complete(entry, board)
    refuse_taken(name, force)
    expected = login.expected()
    with console.events.stage(f"check {name}"):
        report = check_device(entry, arch=board.cpu.arch, ask=asker(console), fingerprint=expected)
    added = AddedDevice(report, add_device(entry, replace=force))

    def render() -> None:
        console.heading(f"added {name}")
        console.fields([*report.facts(), ("remembered in", added.path)])

    console.report(added, render)


def _add_on_a_line(
    console: Console,
    board: Board,
    entry: LineEntry | PlaceEntry,
    fingerprint: str | None,
    force: bool,
) -> None:
    from edgekit.devices.registry import add_device, device_of, refuse_taken

    refuse_taken(entry.name, force)
    host = entry.via.address if entry.via else None
    if host is not None:
        with console.events.stage(f"log in to {host}"):
            line = device_of(entry, board).line()
            problem = line.meet(ask=asker(console), fingerprint=fingerprint)
        if problem is not None:
            console.events.warn(problem.message)
    elif entry.line.startswith("/") and not Path(entry.line).exists():
        console.events.warn(f"there is no {entry.line} yet: plug the board in to use it")
    path = add_device(entry, replace=force)
    added = AddedPort(entry.name, board.name, entry.line, host, path)

    def render() -> None:
        console.heading(f"added {entry.name}")
        console.fields(
            [
                ("board", board.name),
                ("serial port", added.port),
                ("on", added.host or "this host"),
                ("remembered in", added.path),
            ]
        )

    console.report(added, render)


@command.command("list")
@json_option
@pass_console
def list_command(console: Console) -> None:
    """List all known devices."""
    from edgekit.devices.registry import known_devices

    data = console.workspace.data
    devices = [
        ListedDevice(
            known.entry.name,
            known.entry.board,
            known.entry.address,
            known.entry.is_twin,
            known.entry.measured_by,
            known.origin,
            Path(known.entry.profile) if known.entry.profile else None,
            known.problem(data.folder),
        )
        for known in known_devices(data.shown_project).values()
    ]

    def render() -> None:
        if not devices:
            console.print(
                "no devices are known; edgekit device add NAME --board BOARD user@host adds one"
            )
            return
        console.table(
            ("name", "board", "address", "known from"),
            [
                (
                    d.name,
                    d.board,
                    beside(d.address or "", d.measured_by or "hardware").strip() or None,
                    d.origin,
                )
                for d in devices
            ],
        )
        for device in devices:
            if device.problem is not None:
                console.print(f"{device.name}: {device.problem}")

    console.report(devices, render)


@command.command("check")
@click.argument("name", type=REMOTE_DEVICE)
@fingerprint_option
@json_option
@pass_console
def check_command(console: Console, name: str, fingerprint: str | None) -> None:
    """Log in to a device and check whether models can be deployed to it."""
    from edgekit.devices.linux.hostkeys import check_fingerprint

    expected = check_fingerprint(fingerprint) if fingerprint is not None else None
    device = _known(console, name).checkable()
    with console.events.stage(f"check {name}"):
        report = device.check(ask=asker(console), fingerprint=expected)

    def render() -> None:
        console.heading(report.heading)
        console.fields(report.facts())

    console.report(report, render)


@command.command("remove")
@click.argument("name", type=REMOTE_DEVICE)
@json_option
@pass_console
def remove_command(console: Console, name: str) -> None:
    """Forget a device. Nothing changes on the device itself."""
    from edgekit.devices.registry import forget_device

    path = forget_device(name, console.workspace.data.shown_project)
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
    help="Keep the N most recently used models and agents.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Also remove the current versions and the log."
)
@json_option
@pass_console
def clean_command(console: Console, name: str, keep: int, everything: bool) -> None:
    """Remove edgekit's files from a device. They are sent again when needed.

    Current versions and their records stay, unless --all is given.
    """
    if everything and keep:
        raise UsageError("--all keeps nothing", hint="leave --keep or --all out")
    device = _known(console, name).file_keeper()
    with console.events.stage(f"tidy up {name}"):
        report = device.clean(keep=keep, everything=everything, events=console.events)

    def render() -> None:
        console.print(
            f"removed {counted(report.models, 'model')} and {counted(report.agents, 'agent')} "
            f"from {name}, {size(report.freed)}"
        )

    console.report(report, render)


@command.group("power", cls=Group)
def power_group() -> None:
    """Switch the power of a device, as its entry says."""


def _power_command(action: PowerAction, what: str) -> None:
    @click.argument("name", type=REMOTE_DEVICE)
    @click.option("--force", is_flag=True, help="Switch it even if the device is in use.")
    @json_option
    @pass_console
    def switch(console: Console, name: str, force: bool) -> None:
        from edgekit.devices.registry import find_device, known_devices
        from edgekit.devices.switching import switch_device

        data = console.workspace.data
        known = find_device(name, known_devices(data.project))
        board = None if force else known.board(data.folder, console.events)
        switched = switch_device(known.entry, action, board, console.events)
        console.report(switched, lambda: console.print(f"{name}: {switched.outcome}"))

    switch.__doc__ = what
    power_group.command(action)(switch)


_power_command("on", "Switch a device on.")
_power_command("off", "Switch a device off.")
_power_command("cycle", "Switch a device off, and on again after three seconds.")


def _known(console: Console, name: str) -> Device:
    """Return a known device; start it if it is a twin."""
    from edgekit.devices.choice import device_for
    from edgekit.devices.registry import find_device, known_devices

    data = console.workspace.data
    known = find_device(name, known_devices(data.project))
    board = known.board(data.folder, console.events)
    return device_for(board, name, {name: known.entry}, events=console.events)


def asker(console: Console) -> Ask | None:
    """Return the question about a host key; None without a terminal to ask on."""
    if not can_ask(console):
        return None

    def ask(met: NewHostKey) -> bool:
        lines = [
            f"{met.host} shows a {met.kind} key that is not known yet:",
            f"  {met.fingerprint}",
        ]
        return confirmed(console, lines, "Is that what the device itself prints?")

    return ask
