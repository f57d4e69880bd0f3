"""Options that choose a device: --device, --twin, or the board's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.cli.console import Console
from edgekit.cli.options import DEVICE, REMOTE_DEVICE, board_option

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device
    from edgekit.profiles.board import Board
    from edgekit.project.devices import DeviceEntry


twin_option = click.option(
    "--twin", is_flag=True, help="Use the board's emulated twin; start it if necessary."
)
every_option = click.option(
    "--all", "every", is_flag=True, help="Use every known device of the board."
)


def device_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `device_name: str | None` and `twin: bool`."""
    device = click.option(
        "--device", "device_name", type=DEVICE, metavar="NAME", help="The device to use."
    )
    return device(twin_option(function))


class _Devices(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of names."""

    name = "devices"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = tuple(word.strip() for word in str(value).split(","))
        if "" in words or len(set(words)) < len(words):
            self.fail(f"{value!r} is no list of different devices such as a,b", param, ctx)
        return words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{item.value}")
            for item in DEVICE.shell_complete(ctx, param, last)
        ]


DEVICES = _Devices()


def several_devices_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `device_names: tuple[str, ...] | None`, `every: bool` and `twin: bool`."""
    for option in (
        twin_option,
        every_option,
        click.option(
            "--device",
            "device_names",
            type=DEVICES,
            metavar="NAME[,NAME…]",
            help="The device to use, or several at the same time.",
        ),
    ):
        function = option(function)
    return function


def entries_of(console: Console) -> dict[str, DeviceEntry]:
    """Return the entries of all known devices by name."""
    from edgekit.devices.registry import known_devices

    known = known_devices(console.workspace.project)
    return {name: device.entry for name, device in known.items()}


def several_devices(
    console: Console,
    board: Board,
    device_names: tuple[str, ...] | None,
    every: bool,
    twin: bool,
    timeout: float,
) -> tuple[Candidate, ...] | None:
    """Return the devices if several are requested, None if one is."""
    from edgekit.devices.choice import devices_for

    check_devices(device_names, every, twin)
    if not every and (device_names is None or len(device_names) == 1):
        return None
    return devices_for(board, device_names, entries_of(console), timeout)


def check_devices(device_names: tuple[str, ...] | None, every: bool, twin: bool) -> None:
    """Raise UsageError if the options contradict each other."""
    if every and (device_names is not None or twin):
        raise UsageError(
            "--all names every device, and --device or --twin only some",
            hint="leave one of them out",
        )
    if twin and device_names is not None and len(device_names) > 1:
        raise UsageError("--twin and --device name different devices", hint="leave one out")


def several_for_bundle(
    console: Console,
    bundle: Bundle,
    device_names: tuple[str, ...] | None,
    every: bool,
    twin: bool,
    timeout: float,
) -> tuple[Candidate, ...] | None:
    """Return the devices for a bundle's board if several are requested, None if one is."""
    if not every and (device_names is None or len(device_names) == 1):
        return None
    board = console.workspace.board(bundle.manifest.board.name)
    return several_devices(console, board, device_names, every, twin, timeout)


def only(device_names: tuple[str, ...] | None) -> str | None:
    """Return the name if one was given."""
    return device_names[0] if device_names else None


def remote_device_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `device_name: str | None`, `board_name: str | None` and `twin: bool`."""
    twin = click.option("--twin", is_flag=True, help="Use the board's emulated twin.")
    device = click.option(
        "--device", "device_name", type=REMOTE_DEVICE, metavar="NAME", help="The device to use."
    )
    return device(board_option(twin(function)))


def remote_device(
    console: Console,
    device_name: str | None,
    board_name: str | None,
    twin: bool,
    timeout: float | None = None,
) -> Device:
    """Return the device that --device names or the board implies."""
    from edgekit.devices.choice import device_for
    from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
    from edgekit.devices.registry import find_device, known_devices
    from edgekit.project.file import LOCAL

    workspace = console.workspace
    project, known = workspace.project, known_devices(workspace.project)
    if device_name is None and not twin:
        fitting = [d.entry for d in known.values() if board_name in (None, d.entry.board)]
        if len(fitting) == 1:
            device_name = fitting[0].name
        elif board_name is None and (project is None or project.board is None):
            raise _no_device_chosen([entry.name for entry in fitting])
    if device_name is not None and device_name != LOCAL and device_name not in known:
        board_name = board_name or _board_of_twin(device_name, twin)
    if board_name is None and device_name is not None and device_name != LOCAL:
        board_name = find_device(device_name, known).entry.board
    return device_for(
        workspace.board(LOCAL if device_name == LOCAL else board_name),
        device_name,
        {name: device.entry for name, device in known.items()},
        timeout or DEFAULT_TIMEOUT_SECONDS,
        console.events,
        twin=twin,
    )


def _board_of_twin(name: str, twin_given: bool) -> str | None:
    """Return the board of the twin with that name, None if there is none."""
    from edgekit.twin.machine import all_twins

    twin = next((twin for twin in all_twins() if twin.name == name), None)
    if twin is None or twin_given:
        return None if twin is None else twin.board
    which = "" if name == twin.board else f" --device {name}"
    raise UsageError(
        f"there is no device {name!r}, only a twin of that name",
        hint=f"say --board {twin.board} --twin{which}",
    )


def _no_device_chosen(known: list[str]) -> EdgekitError:
    if known:
        return UsageError(
            f"several devices are known: {', '.join(known)}",
            hint="say which with --device NAME, or --board NAME for the first free one of a board",
        )
    return DeviceError(
        "no device is known",
        hint="edgekit device add NAME --board BOARD user@host adds one; --board BOARD --twin "
        "uses an emulated one",
    )


def device_for_board(
    console: Console, board: Board, device_name: str | None, twin: bool, timeout: float
) -> Device:
    from edgekit.devices.choice import device_for

    return device_for(board, device_name, entries_of(console), timeout, console.events, twin=twin)


def device_for_bundle(
    console: Console, bundle: Bundle, device_name: str | None, twin: bool, timeout: float
) -> Device:
    """Return a device of the board that the bundle was built for."""
    from edgekit.devices.local.device import LocalDevice

    built_for = bundle.manifest.board
    if not twin and (device_name == "local" or (device_name is None and built_for.is_host)):
        return LocalDevice(timeout)
    board = console.workspace.board(built_for.name)
    return device_for_board(console, board, device_name, twin, timeout)
