"""edgekit farm: the devices of a project as one pool."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.options import REMOTE_DEVICE, Group, json_option, pass_console
from edgekit.console import Console
from edgekit.rpc.protocol import DEFAULT_PORT
from edgekit.wording import duration

if TYPE_CHECKING:
    from edgekit.farm.status import DeviceStatus, FarmStatus
    from edgekit.farm.web import WebServing

_PORT = click.IntRange(1, (1 << 16) - 1)
_SECONDS_BETWEEN = 1.0


@click.group("farm", cls=Group)
def command() -> None:
    """All devices as one pool behind TVM's tracker, watched over.

    \b
    edgekit farm up                 one terminal, or a service: edgekit farm install
    edgekit farm status             from anywhere else
    tvm.rpc.connect_tracker("127.0.0.1", 9190).request("rpi4")
    """


@command.command("up", short_help="Serve devices until Ctrl-C.")
@click.argument("names", nargs=-1, type=REMOTE_DEVICE, metavar="[DEVICE]...")
@click.option("--port", type=_PORT, default=DEFAULT_PORT, show_default=True, help="The tracker's.")
@json_option
@pass_console
def up_command(console: Console, names: tuple[str, ...], port: int) -> None:
    """Serve all known devices, or those that are named, until Ctrl-C or `edgekit farm down`.

    Microcontrollers are watched, not handed out: whoever uses one has its serial line.

    A device that is lost is tried again; one that is lost repeatedly is left alone for a while.
    """
    from edgekit.farm.keeper import run_farm
    from edgekit.farm.plan import plan_farm
    from edgekit.project import find_project

    plan = plan_farm(find_project(Path.cwd()), names, port)

    def started(status: FarmStatus) -> None:
        count = len(status.devices)
        console.report(
            status,
            lambda: console.print(
                f"the farm is up with {count} device{'s' * (count != 1)}, "
                f"its tracker at {status.tracker}, until Ctrl-C"
            ),
        )

    run_farm(plan, started=started, events=console.events)


@command.command("down", short_help="End the farm.")
@json_option
@pass_console
def down_command(console: Console) -> None:
    """End the farm of this machine: sessions that run on its devices end too."""
    from edgekit.farm.control import down
    from edgekit.farm.waiting import wait_for_end

    status = down()
    wait_for_end(status.pid)
    console.report(status, lambda: console.print("the farm is down"))


@command.command("status", short_help="Show the devices and who has them.")
@json_option
@pass_console
def status_command(console: Console) -> None:
    """Show every device of the farm: its state, who has it, and why it is not to be had."""
    from edgekit.farm.control import farm_status

    status = farm_status()
    console.report(status, lambda: _render(console, status))


@command.command("watch", short_help="The same, again and again.")
@click.option(
    "--count", type=click.IntRange(1), metavar="N", help="So many times.  [default: until Ctrl-C]"
)
@json_option
@pass_console
def watch_command(console: Console, count: int | None) -> None:
    """Show the farm whenever something about it changes. With --json a document a line."""
    from edgekit.farm.control import farm_status
    from edgekit.farm.waiting import changed

    shown: FarmStatus | None = None
    times = 0
    while count is None or times < count:
        status = farm_status()
        if shown is None or changed(shown, status):
            shown = status
            times += 1
            if console.as_json:
                console.json_line(status)
            else:
                _render(console, status)
        time.sleep(_SECONDS_BETWEEN)


@command.command("drain", short_help="Take a device out.")
@click.argument("device")
@json_option
@pass_console
def drain_command(console: Console, device: str) -> None:
    """Give DEVICE to nobody any more; a session that runs on it ends first."""
    from edgekit.farm.control import drain

    status = drain(device)
    console.report(status, lambda: _render(console, status))


@command.command("resume", short_help="Put a device back.")
@click.argument("device")
@json_option
@pass_console
def resume_command(console: Console, device: str) -> None:
    """Put DEVICE back, after a drain or out of its quarantine."""
    from edgekit.farm.control import resume

    status = resume(device)
    console.report(status, lambda: _render(console, status))


@command.command("web", short_help="Show the farm in a browser.")
@click.option(
    "--port",
    type=click.IntRange(0, (1 << 16) - 1),
    default=9191,
    show_default=True,
    help="Where it listens; 0 takes any.",
)
@click.option("--store", "url", metavar="URL", help="As for edgekit results.")
@json_option
@pass_console
def web_command(console: Console, port: int, url: str | None) -> None:
    """A page with the devices and the results, and metrics for Prometheus, on loopback.

    Whoever has the printed address may look. Prometheus sends the token as a bearer token.
    """
    from edgekit.farm.web import serve_web
    from edgekit.project import choose_store, find_project

    def started(serving: WebServing) -> None:
        console.report(serving, lambda: _render_web(console, serving))

    serve_web(port, choose_store(find_project(Path.cwd()), url), started=started)


@command.command("install", short_help="Write systemd units.")
@click.argument("names", nargs=-1, type=REMOTE_DEVICE, metavar="[DEVICE]...")
@click.option("--web/--no-web", default=True, show_default=True, help="The page as a service too.")
@json_option
@pass_console
def install_command(console: Console, names: tuple[str, ...], web: bool) -> None:
    """Write units for your own systemd, so that the farm is up when the machine is."""
    from edgekit.farm.install import install
    from edgekit.project import find_project

    done = install(find_project(Path.cwd()), names, web=web)

    def render() -> None:
        for path in done.units:
            console.print(f"wrote {path}")
        console.print("switch them on with:")
        for line in done.commands:
            console.print(f"  {line}")

    console.report(done, render)


def _render_web(console: Console, serving: WebServing) -> None:
    console.heading("the farm's page is served until Ctrl-C")
    console.fields([("page", serving.url), ("metrics", serving.metrics)])


def _render(console: Console, status: FarmStatus) -> None:
    console.print(f"up for {duration(status.now - status.started)}, tracker at {status.tracker}")
    console.table(
        ("device", "key", "state", "since", "who", "load", "°C", "sessions", "why"),
        [_row(device, status.now) for device in status.devices],
        right=("load", "°C", "sessions"),
    )


def _row(device: DeviceStatus, now: float) -> list[object]:
    lease = device.lease
    why = device.reason
    if device.again_at is not None:
        why = f"{why}; again in {duration(max(device.again_at - now, 0))}"
    return [
        device.name,
        device.key or f"({device.board})",
        device.state,
        duration(max(now - device.since, 0)),
        None if lease is None else f"{lease.owner}: {lease.purpose}",
        None if device.load is None else f"{device.load:.2f}",
        None if device.temperature is None else f"{device.temperature:.0f}",
        device.sessions,
        why or None,
    ]
