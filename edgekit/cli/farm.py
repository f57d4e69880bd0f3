"""edgekit farm: the devices of a project as one pool."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import duration
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
    from edgekit.farm.plan import plan_farm
    from edgekit.farm.run import run_farm
    from edgekit.project.file import find_project

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
    from edgekit.farm.control import down, wait_for_end

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


@command.command("join", short_help="Take in another host's farm.")
@click.argument("address", metavar="[USER@]HOST[:PORT]")
@click.option("--name", metavar="NAME", help="What to call it.  [default: from its address]")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="The private key to log in with."
)
@click.option("--proxy", metavar="[USER@]HOST[:PORT]", help="A host to go through.")
@click.option(
    "--edgekit",
    "program",
    metavar="PROGRAM",
    help="edgekit over there, where it is not on the PATH.",
)
@click.option(
    "--fingerprint",
    metavar="SHA256:…",
    help="Its host key, as its own ssh-keygen -l prints it: then nothing is asked.",
)
@click.option("--force", is_flag=True, help="Replace a host of that name.")
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
    """Let the devices of another host belong to this farm, as long as that host can be reached.

    Over there, `edgekit farm up` runs as here. Everything goes through one SSH connection.
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
        console.heading(f"{host.name} belongs to this farm from now on")
        console.fields(
            [("devices", ", ".join(done.devices) or "none yet"), ("remembered in", done.path)]
        )
        if not done.is_up:
            console.print("edgekit farm up has them too, once it runs")

    console.report(done, render)


@command.command("leave", short_help="Let a host go.")
@click.argument("host")
@json_option
@pass_console
def leave_command(console: Console, host: str) -> None:
    """Let HOST go: its devices stay in its own farm, and sessions on them from here end."""
    from edgekit.farm.hosts.joining import leave

    done = leave(host)
    console.report(done, lambda: console.print(f"{host} has left the farm"))


@command.command("gate", hidden=True)
def gate_command() -> None:
    """What another host's farm runs here, through SSH."""
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
    help="Where it listens; 0 takes any.",
)
@click.option("--store", "url", metavar="URL", help="As for edgekit results.")
@click.option(
    "--new-token", is_flag=True, help="Make another token; whoever has the old one is out."
)
@json_option
@pass_console
def web_command(console: Console, port: int, url: str | None, new_token: bool) -> None:
    """A page with devices, tuning sessions and results, and metrics for Prometheus, on loopback.

    Whoever has the printed address may look. Prometheus sends the token as a bearer token.
    """
    from edgekit.farm.web.server import serve_web
    from edgekit.project.file import choose_store, find_project

    def started(serving: WebServing) -> None:
        console.report(serving, lambda: _render_web(console, serving))

    store = choose_store(find_project(Path.cwd()), url)
    serve_web(port, store, new_token=new_token, started=started, events=console.events)


@command.command("install", short_help="Write systemd units.")
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option("--web/--no-web", default=True, show_default=True, help="The page as a service too.")
@click.option("--on", "host", metavar="HOST", help="On a host that has joined the farm.")
@json_option
@pass_console
def install_command(console: Console, names: tuple[str, ...], web: bool, host: str | None) -> None:
    """Write units for your own systemd, so that the farm is up when the machine is."""
    from edgekit.farm.hosts.install import install, install_on
    from edgekit.project.file import find_project

    if host is not None:
        done = install_on(host, names, web=web)
    else:
        done = install(find_project(Path.cwd()), names, web=web)

    def render() -> None:
        if host is not None:
            console.print(f"on {host}:")
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
        who = f"{who or 'nobody'}; {device.waiting} wait"
    return [
        device.name,
        *((device.host or "here",) * hosts),
        device.key or f"({device.board})",
        device.state,
        duration(max(now - device.since, 0)),
        who,
        None if device.load is None else f"{device.load:.2f}",
        None if device.temperature is None else f"{device.temperature:.0f}",
        device.sessions,
        _why(device, now).removeprefix(": ") or None,
    ]


def _why(one: DeviceStatus | HostStatus, now: float) -> str:
    again = "" if one.again_at is None else f"; again in {duration(max(one.again_at - now, 0))}"
    return f": {one.reason}{again}" if one.reason or again else ""
