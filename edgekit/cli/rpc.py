"""edgekit rpc: serve devices to TVM's RPC clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from edgekit.base.errors import UsageError
from edgekit.cli.console import Console
from edgekit.cli.options import REMOTE_DEVICE, Group, json_option, pass_console
from edgekit.rpc.protocol import DEFAULT_PORT

if TYPE_CHECKING:
    from edgekit.rpc.protocol import KeyStatus
    from edgekit.rpc.server import Serving
    from edgekit.rpc.tracker import RunningTracker


@dataclass(frozen=True)
class TrackerReport:
    host: str
    port: int
    pid: int
    already_running: bool


@dataclass(frozen=True)
class StatusReport:
    host: str
    port: int
    keys: tuple[KeyStatus, ...]


@dataclass(frozen=True)
class StopReport:
    stopped: RunningTracker | None


_PORT = click.IntRange(1, (1 << 16) - 1)

_tracker_option = click.option(
    "--tracker",
    "tracker_text",
    metavar="HOST:PORT",
    help="Use another tracker than edgekit's own on this host.",
)


@click.group("rpc", cls=Group)
def command() -> None:
    """Serve devices to TVM's RPC clients, through SSH.

    \b
    edgekit rpc tracker                 one terminal: who has which device
    edgekit rpc serve --device kitchen  another one: a device registers
    tvm.rpc.connect_tracker("127.0.0.1", 9190).request("rpi4")
    """


@command.command("tracker", short_help="Run TVM's tracker.")
@click.option("--port", type=_PORT, help=f"Port to listen on.  [default: {DEFAULT_PORT}]")
@json_option
@pass_console
def tracker_command(console: Console, port: int | None) -> None:
    """Run TVM's tracker on this host's loopback until Ctrl-C or `edgekit rpc stop`.

    If one is already running, print its address.
    """
    from edgekit.rpc.tracker import run_tracker, running_tracker

    def report(tracker: RunningTracker, already: bool) -> None:
        document = TrackerReport(tracker.host, tracker.port, tracker.pid, already)
        state = "runs already" if already else "runs until Ctrl-C"
        console.report(document, lambda: console.print(f"the tracker at {tracker.address} {state}"))

    running = running_tracker()
    if running is None:
        run_tracker(
            DEFAULT_PORT if port is None else port,
            started=lambda tracker: report(tracker, False),
            events=console.events,
        )
        return
    if port not in (None, running.port):
        raise UsageError(
            f"a tracker is running already, at {running.address}",
            hint="use that one, or end it first: edgekit rpc stop",
        )
    report(running, True)


@command.command("serve", short_help="Let a device serve TVM's RPC.")
@click.option(
    "--device",
    "name",
    type=REMOTE_DEVICE,
    metavar="NAME",
    required=True,
    help="The device to serve.",
)
@click.option(
    "--key", metavar="KEY", help="The key that clients request.  [default: the board's name]"
)
@_tracker_option
@click.option("--direct", is_flag=True, help="Use no tracker: clients connect to the local port.")
@click.option("--port", type=_PORT, help="The local port for the device.  [default: any free one]")
@json_option
@pass_console
def serve_command(
    console: Console,
    name: str,
    key: str | None,
    tracker_text: str | None,
    direct: bool,
    port: int | None,
) -> None:
    """Let a device serve TVM's RPC until Ctrl-C, and register it with the tracker.

    Everything goes through one SSH connection. If that is lost, or the device restarts, it
    is served again as soon as it is back.
    """
    from edgekit.devices.choice import device_for
    from edgekit.devices.registry import find_device, known_devices
    from edgekit.rpc.protocol import parse_tracker
    from edgekit.rpc.server import ServePlan, serve_device
    from edgekit.rpc.tracker import find_tracker

    if direct and tracker_text:
        raise UsageError("--direct uses no tracker", hint="leave out --direct or --tracker")
    data = console.workspace.data
    known = find_device(name, known_devices(data.project))
    board = known.board(data.folder, console.events)
    tracker = None
    if not direct:
        tracker = find_tracker(parse_tracker(tracker_text) if tracker_text else None)
    device = device_for(board, name, {name: known.entry}, events=console.events).agent()
    plan = ServePlan(device, key or board.name, tracker, port or 0)
    reported = False

    def started(serving: Serving) -> None:
        nonlocal reported
        if reported:
            console.events.warn(f"{serving.device} can be used again")
            return
        reported = True
        console.report(serving, lambda: _render_serving(console, serving))

    serve_device(plan, started=started, events=console.events)


@command.command("status", short_help="Show which devices are free.")
@_tracker_option
@json_option
@pass_console
def status_command(console: Console, tracker_text: str | None) -> None:
    """Show the devices that are registered with the tracker, and which are free."""
    from edgekit.rpc.protocol import TrackerClient, parse_tracker
    from edgekit.rpc.tracker import find_tracker

    address = find_tracker(parse_tracker(tracker_text) if tracker_text else None)
    with TrackerClient(address) as client:
        report = StatusReport(address.host, address.port, client.status())

    def render() -> None:
        console.print(f"the tracker at {address}")
        if not report.keys:
            console.print("no devices; edgekit rpc serve --device NAME registers one")
            return
        console.table(
            ("key", "free", "busy", "waiting for one"),
            [(status.key, status.free, status.busy, status.pending) for status in report.keys],
            right=("free", "busy", "waiting for one"),
        )

    console.report(report, render)


@command.command("stop", short_help="End the tracker.")
@json_option
@pass_console
def stop_command(console: Console) -> None:
    """End the tracker on this host. Devices register again with the next one."""
    from edgekit.rpc.tracker import stop_tracker

    stopped = stop_tracker()
    console.report(
        StopReport(stopped),
        lambda: console.print(
            f"the tracker at {stopped.address} has ended" if stopped else "no tracker is running"
        ),
    )


def _render_serving(console: Console, serving: Serving) -> None:
    console.heading(f"{serving.device} serves TVM's RPC until Ctrl-C")
    if serving.tracker is not None:
        ask = f'connect_tracker("{serving.tracker.host}", {serving.tracker.port})'
        use = f'tvm.rpc.{ask}.request("{serving.key}")'
    else:
        use = f'tvm.rpc.connect("{serving.host}", {serving.port}, "{serving.key}")'
    console.fields(
        [
            ("key", serving.key),
            ("tracker", serving.tracker),
            ("local port", serving.port),
            ("TVM on the device", serving.tvm),
            ("use it", use),
        ]
    )
