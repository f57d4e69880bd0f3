"""edgekit farm: run the devices of a project as one pool."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import celsius, duration
from edgekit.cli.console import Console
from edgekit.cli.options import REMOTE_DEVICE, Group, json_option, pass_console
from edgekit.rpc.protocol import DEFAULT_PORT

if TYPE_CHECKING:
    from edgekit.farm.status import DeviceStatus, FarmStatus, HostStatus
    from edgekit.farm.web.server import WebServing

_PORT = click.IntRange(1, (1 << 16) - 1)
_SECONDS_BETWEEN = 1.0


@click.group("farm", cls=Group)
def command() -> None:
    """Run all devices as one monitored pool behind TVM's tracker.

    \b
    edgekit farm up            one terminal, or a service: edgekit farm install
    edgekit farm status        from another terminal
    tvm.rpc.connect_tracker("127.0.0.1", 9190).request("rpi4")
    """


@command.command("up", short_help="Serve devices until Ctrl-C.")
@click.argument("names", nargs=-1, type=REMOTE_DEVICE, metavar="[DEVICE]...")
@click.option(
    "--port", type=_PORT, default=DEFAULT_PORT, show_default=True, help="Port of the tracker."
)
@json_option
@pass_console
def up_command(console: Console, names: tuple[str, ...], port: int) -> None:
    """Serve all known devices, or those named, until Ctrl-C or `edgekit farm down`.

    Microcontrollers are monitored but not lent, because a serial line has one user.

    A lost device is tried again. One that is lost repeatedly is quarantined for a while.
    """
    from edgekit.farm.plan import plan_farm
    from edgekit.farm.run import run_farm

    plan = plan_farm(console.workspace.data.project, names, port)

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
    """End the farm of this host and all sessions on its devices."""
    from edgekit.farm.control import down, wait_for_end

    status = down()
    wait_for_end(status.pid)
    console.report(status, lambda: console.print("the farm is down"))


@command.command("status", short_help="Show the devices and who uses them.")
@json_option
@pass_console
def status_command(console: Console) -> None:
    """Show every device of the farm: its state, who uses it, and why it is unavailable."""
    from edgekit.farm.control import farm_status

    status = farm_status()
    console.report(status, lambda: _render(console, status))


@command.command("watch", short_help="Show the status at each change.")
@click.option(
    "--count",
    type=click.IntRange(1),
    metavar="N",
    help="Number of updates to show.  [default: until Ctrl-C]",
)
@json_option
@pass_console
def watch_command(console: Console, count: int | None) -> None:
    """Show the status whenever it changes. With --json, one document per line."""
    from edgekit.farm.control import farm_status
    from edgekit.farm.status import changed

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
    """Stop lending DEVICE; a running session finishes first."""
    from edgekit.farm.control import drain

    status = drain(device)
    console.report(status, lambda: _render(console, status))


@command.command("resume", short_help="Put a device back.")
@click.argument("device")
@json_option
@pass_console
def resume_command(console: Console, device: str) -> None:
    """Lend DEVICE again after a drain or a quarantine."""
    from edgekit.farm.control import resume

    status = resume(device)
    console.report(status, lambda: _render(console, status))


@command.command("join", short_help="Add the devices of another host's farm.")
@click.argument("address", metavar="[USER@]HOST[:PORT]")
@click.option("--name", metavar="NAME", help="Name of the host.  [default: from its address]")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="The private key to log in with."
)
@click.option("--proxy", metavar="[USER@]HOST[:PORT]", help="A jump host.")
@click.option(
    "--edgekit",
    "program",
    metavar="PROGRAM",
    help="Path of edgekit on that host, if it is not on the PATH.",
)
@click.option(
    "--fingerprint",
    metavar="SHA256:…",
    help="Expected host key, as ssh-keygen -l on that host prints it; skips the question.",
)
@click.option("--force", is_flag=True, help="Replace a host with that name.")
@json_option
@pass_console
def join_command(
    console: Console,
    address: str,
    name: str | None,
    key: Path | None,
    proxy: str | None,
    program: str | None,
    fingerprint: str | None,
    force: bool,
) -> None:
    """Add the devices of another host to this farm for as long as that host can be reached.

    That host runs its own `edgekit farm up`. Everything goes through one SSH connection.
    """
    from edgekit.cli.device import asker
    from edgekit.devices.linux.hostkeys import check_fingerprint
    from edgekit.farm.hosts.file import make_host
    from edgekit.farm.hosts.joining import join

    host = make_host(address, name=name, key=key, proxy=proxy, program=program)
    expected = check_fingerprint(fingerprint) if fingerprint is not None else None
    with console.events.stage(f"log in to {host.address}"):
        done = join(host, ask=asker(console), fingerprint=expected, replace=force)

    def render() -> None:
        console.heading(f"{host.name} has joined the farm")
        console.fields(
            [("devices", ", ".join(done.devices) or "none yet"), ("remembered in", done.path)]
        )
        if not done.is_up:
            console.print("edgekit farm up will serve them too")

    console.report(done, render)


@command.command("leave", short_help="Remove a host from the farm.")
@click.argument("host")
@json_option
@pass_console
def leave_command(console: Console, host: str) -> None:
    """Remove HOST. Its devices stay in its own farm; this host's sessions on them end."""
    from edgekit.farm.hosts.joining import leave

    done = leave(host)
    console.report(done, lambda: console.print(f"{host} has left the farm"))


@command.command("gate", hidden=True)
def gate_command() -> None:
    """Serve another host's farm, which runs this command over SSH."""
    import sys

    from edgekit.farm.hosts.relay import Relay

    def say(document: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()

    Relay(say).serve(sys.stdin.fileno())


@command.command("web", short_help="Show the farm in a browser.")
@click.option(
    "--port",
    type=click.IntRange(0, (1 << 16) - 1),
    default=9191,
    show_default=True,
    help="Port to listen on; 0 takes any free one.",
)
@click.option("--store", "url", metavar="URL", help="The store, as for edgekit results.")
@click.option("--new-token", is_flag=True, help="Create a new token and revoke the old one.")
@json_option
@pass_console
def web_command(console: Console, port: int, url: str | None, new_token: bool) -> None:
    """Serve a page with devices, tuning sessions and results, and Prometheus metrics, on loopback.

    The printed address contains the access token. Prometheus sends it as a bearer token.
    """
    from edgekit.farm.web.server import serve_web
    from edgekit.project.file import choose_store

    def started(serving: WebServing) -> None:
        console.report(serving, lambda: _render_web(console, serving))

    store = choose_store(console.workspace.data.project, url)
    serve_web(port, store, new_token=new_token, started=started, events=console.events)


@command.command("install", short_help="Write systemd units.")
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option(
    "--web/--no-web", default=True, show_default=True, help="Also install the page as a service."
)
@click.option("--on", "host", metavar="HOST", help="Install on a host that has joined the farm.")
@json_option
@pass_console
def install_command(console: Console, names: tuple[str, ...], web: bool, host: str | None) -> None:
    """Write units for your user's systemd, so that the farm starts with the host."""
    from edgekit.farm.hosts.install import install, install_on

    if host is not None:
        done = install_on(host, names, web=web)
    else:
        done = install(console.workspace.data.project, names, web=web)

    def render() -> None:
        if host is not None:
            console.print(f"on {host}:")
        for path in done.units:
            console.print(f"wrote {path}")
        console.print("enable them with:")
        for line in done.commands:
            console.print(f"  {line}")

    console.report(done, render)


def _render_web(console: Console, serving: WebServing) -> None:
    console.heading("the farm's page is served until Ctrl-C")
    console.fields([("page", serving.url), ("metrics", serving.metrics)])


def _render(console: Console, status: FarmStatus) -> None:
    console.print(f"up for {duration(status.now - status.started)}, tracker at {status.tracker}")
    hosts = len(status.hosts) > 0
    heads = ("device", *(("host",) * hosts), "key", "state", "since", "who", "load", "°C")
    console.table(
        (*heads, "sessions", "why"),
        [_row(device, status.now, hosts) for device in status.devices],
        right=("load", "°C", "sessions"),
    )
    for host in status.hosts:
        if host.state != "up":
            console.print(f"{host.name} ({host.address}) is {host.state}{_why(host, status.now)}")


def _row(device: DeviceStatus, now: float, hosts: bool) -> list[object]:
    lease = device.lease
    who = None if lease is None else f"{lease.owner}: {lease.purpose}"
    if device.waiting:
        who = f"{who or 'no lease'}; {device.waiting} wait"
    return [
        device.name,
        *((device.host or "here",) * hosts),
        device.key or f"({device.board})",
        device.state,
        duration(max(now - device.since, 0)),
        who,
        None if device.load is None else f"{device.load:.2f}",
        None if device.temperature is None else celsius(device.temperature),
        device.sessions,
        _why(device, now).removeprefix(": ") or None,
    ]


def _why(one: DeviceStatus | HostStatus, now: float) -> str:
    again = "" if one.again_at is None else f"; again in {duration(max(one.again_at - now, 0))}"
    return f": {one.reason}{again}" if one.reason or again else ""
