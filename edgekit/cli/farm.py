"""edgekit farm: run the devices of a project as one pool."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from edgekit.base.wording import duration, number
from edgekit.cli.console import Console
from edgekit.cli.device_options import Login, login_options
from edgekit.cli.options import REMOTE_DEVICE, Group, json_option, pass_console
from edgekit.rpc.protocol import DEFAULT_PORT

if TYPE_CHECKING:
    from edgekit.devices.keeper_messages import (
        DeviceStatus,
        FarmStatus,
        HostStatus,
        Lease,
        Reservation,
        Waiter,
    )
    from edgekit.farm.web.server import WebServing

_PORT = click.IntRange(1, (1 << 16) - 1)
_SECONDS_BETWEEN = 1.0


class _Duration(click.ParamType[float]):
    """A time such as 90m, in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = re.fullmatch(
            r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smhd])", str(value).strip().lower()
        )
        if found is None:
            self.fail(f"{value!r} is not a time such as 45s, 90m, 2h or 1d", param, ctx)
        return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


_DURATION = _Duration()

longest_option = click.option(
    "--longest-reservation",
    type=_DURATION,
    metavar="TIME",
    default="24h",
    show_default=True,
    help="The most time that `edgekit farm reserve` gives.",
)


@dataclass(frozen=True)
class ReservationReport:
    """A device whose reservation began or ended."""

    device: str
    reservation: Reservation | None
    lease: Lease | None
    """The work that goes on before the reservation takes effect, or after its end."""


@dataclass(frozen=True)
class DeviceQueue:
    """A device that is in use, reserved or waited for."""

    device: str
    state: str
    kind: str
    """Emulated or hardware; empty until the device was up."""
    lease: Lease | None
    reservation: Reservation | None
    queue: tuple[Waiter, ...]
    """The clients that wait, the next one first."""


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
@longest_option
@json_option
@pass_console
def up_command(
    console: Console, names: tuple[str, ...], port: int, longest_reservation: float
) -> None:
    """Serve all known devices, or those named, until Ctrl-C or `edgekit farm down`.

    TVM's tracker hands out boards with Linux to TVM's clients. The other commands of edgekit wait
    in the farm's queue for a device.

    A lost device is tried again. One that is lost repeatedly is quarantined for a while.
    """
    from edgekit.farm.plan import plan_farm
    from edgekit.farm.run import run_farm

    plan = replace(
        plan_farm(console.workspace.data.project, names, port),
        longest_reservation=longest_reservation,
    )

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
    from edgekit.devices.keeper_messages import changed
    from edgekit.farm.control import farm_status

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


@command.command("reserve", short_help="Keep a device for yourself for a while.")
@click.argument("device")
@click.option(
    "--for",
    "seconds",
    type=_DURATION,
    metavar="TIME",
    required=True,
    help="The time, such as 45s, 90m, 2h or 1d.",
)
@click.option("--why", "purpose", metavar="TEXT", default="", help="A purpose for others to see.")
@json_option
@pass_console
def reserve_command(console: Console, device: str, seconds: float, purpose: str) -> None:
    """Reserve DEVICE for your own commands; those of other users wait.

    What runs on it ends first. The reservation ends by itself, with `edgekit farm release`, and
    survives a restart of the farm. A second one replaces the first. TVM's tracker does not hand
    out the device meanwhile.
    """
    from edgekit.farm.control import reserve

    _show_reservation(console, device, reserve(device, seconds, purpose))


@command.command("release", short_help="End a reservation.")
@click.argument("device")
@click.option("--force", is_flag=True, help="End the reservation of another user, too.")
@json_option
@pass_console
def release_command(console: Console, device: str, force: bool) -> None:
    """End your reservation of DEVICE. What runs on the device goes on."""
    from edgekit.farm.control import release

    _show_reservation(console, device, release(device, force=force))


@command.command("queue", short_help="Show who uses and who waits for devices.")
@click.argument("device", required=False)
@json_option
@pass_console
def queue_command(console: Console, device: str | None) -> None:
    """Show who uses, has reserved or waits for DEVICE, or any device.

    The next client in the queue is number 1. Clients of TVM's tracker wait in the tracker: see
    `edgekit rpc status`.
    """
    from edgekit.devices.keeper_messages import kind_of
    from edgekit.farm.control import farm_status

    status = farm_status()
    chosen = status.devices if device is None else (status.device(device),)
    queues = [
        DeviceQueue(one.name, one.state, kind_of(one), one.lease, one.reservation, one.queue)
        for one in chosen
        if device is not None or one.lease or one.reservation or one.queue
    ]
    console.report(queues, lambda: _render_queues(console, queues, status.now))


@command.command("join", short_help="Add the devices of another host's farm.")
@click.argument("address", metavar="[USER@]HOST[:PORT]")
@click.option("--name", metavar="NAME", help="Name of the host.  [default: from its address]")
@login_options
@click.option(
    "--edgekit",
    "program",
    metavar="PROGRAM",
    help="Path of edgekit on that host, if it is not on the PATH.",
)
@click.option("--force", is_flag=True, help="Replace a host with that name.")
@json_option
@pass_console
def join_command(
    console: Console,
    address: str,
    name: str | None,
    login: Login,
    program: str | None,
    force: bool,
) -> None:
    """Add the devices of another host to this farm for as long as that host can be reached.

    That host runs its own `edgekit farm up`. Everything goes through one SSH connection.
    """
    from edgekit.cli.device import asker
    from edgekit.farm.hosts.file import make_host
    from edgekit.farm.hosts.joining import join

    host = make_host(address, name=name, key=login.key, proxy=login.proxy, program=program)
    expected = login.expected()
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
@click.option("--device", metavar="NAME", help="Lead to this device instead of to the farm.")
def gate_command(device: str | None) -> None:
    """Serve another host's farm, which runs this command over SSH."""
    import sys

    if device is not None:
        from edgekit.farm.hosts.device_gate import serve_device

        serve_device(device, sys.stdin.fileno(), sys.stdout.fileno())
        return
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
@click.option("--dashboard", metavar="URL", default="", help="Link this page of Dask's cluster.")
@click.option("--new-token", is_flag=True, help="Create a new token and revoke the old one.")
@json_option
@pass_console
def web_command(
    console: Console, port: int, url: str | None, dashboard: str, new_token: bool
) -> None:
    """Serve a page with devices, tuning sessions and results, and Prometheus metrics, on loopback.

    The printed address contains the access token. Prometheus sends it as a bearer token.
    """
    from edgekit.farm.web.server import Sources, serve_web
    from edgekit.project.file import choose_store

    def started(serving: WebServing) -> None:
        console.report(serving, lambda: _render_web(console, serving))

    sources = Sources(choose_store(console.workspace.data.project, url), dashboard)
    serve_web(port, sources, new_token=new_token, started=started, events=console.events)


@command.command("install", short_help="Write systemd units.")
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option(
    "--web/--no-web", default=True, show_default=True, help="Also install the page as a service."
)
@click.option("--on", "host", metavar="HOST", help="Install on a host that has joined the farm.")
@longest_option
@json_option
@pass_console
def install_command(
    console: Console,
    names: tuple[str, ...],
    web: bool,
    host: str | None,
    longest_reservation: float,
) -> None:
    """Write units for your user's systemd, so that the farm starts with the host."""
    from edgekit.farm.hosts.install import install, install_on
    from edgekit.farm.plan import DEFAULT_LONGEST_RESERVATION

    is_default = longest_reservation == DEFAULT_LONGEST_RESERVATION
    options = () if is_default else ("--longest-reservation", f"{longest_reservation:g}s")
    if host is not None:
        done = install_on(host, names, options, web=web)
    else:
        done = install(console.workspace.data.project, names, options, web=web)

    def render() -> None:
        if host is not None:
            console.print(f"on {host}:")
        for path in done.units:
            console.print(f"wrote {path}")
        console.print("enable them with:")
        for line in done.commands:
            console.print(f"  {line}")

    console.report(done, render)


def _show_reservation(console: Console, name: str, status: FarmStatus) -> None:
    device = status.device(name)
    report = ReservationReport(device.name, device.reservation, device.lease)
    reservation, lease = report.reservation, report.lease

    def render() -> None:
        if reservation is None:
            console.print(f"{device.name} is not reserved any more")
            return
        left = duration(max(reservation.until - status.now, 0))
        console.print(f"{device.name} is reserved for {reservation.user} for {left}")
        if lease is not None and lease.owner.rpartition(":")[0] != reservation.user:
            console.print(f"{lease.owner} ({lease.purpose}) has it now and finishes first")

    console.report(report, render)


def _render_queues(console: Console, queues: list[DeviceQueue], now: float) -> None:
    rows: list[tuple[object, ...]] = []
    for one in queues:
        kind = one.kind or None
        if one.reservation is not None:
            reservation = one.reservation
            left = f"{duration(max(reservation.until - now, 0))} left"
            rows.append(
                (one.device, kind, "reserved", reservation.user, reservation.purpose or None, left)
            )
        if one.lease is not None:
            since = duration(max(now - one.lease.since, 0)) if one.lease.since else None
            rows.append((one.device, kind, "has it", one.lease.owner, one.lease.purpose, since))
        for place, waiter in enumerate(one.queue, 1):
            since = duration(max(now - waiter.since, 0))
            rows.append((one.device, kind, str(place), waiter.owner, waiter.purpose, since))
    if not rows:
        console.print("no lease of the farm is in use, and nothing waits for one")
        return
    console.table(("device", "kind", "place", "who", "for", "time"), rows)


def _render_web(console: Console, serving: WebServing) -> None:
    console.heading("the farm's page is served until Ctrl-C")
    console.fields([("page", serving.url), ("metrics", serving.metrics)])


def _render(console: Console, status: FarmStatus) -> None:
    console.print(f"up for {duration(status.now - status.started)}, tracker at {status.tracker}")
    hosts = len(status.hosts) > 0
    heads = ("device", *(("host",) * hosts), "key", "kind", "state", "since", "who", "load", "°C")
    console.table(
        (*heads, "sessions", "why"),
        [_row(device, status.now, hosts) for device in status.devices],
        right=("load", "°C", "sessions"),
        spare=("load", "°C", "sessions", "since"),
    )
    for host in status.hosts:
        if host.state != "up":
            console.print(f"{host.name} ({host.address}) is {host.state}{_why(host, status.now)}")


def _row(device: DeviceStatus, now: float, hosts: bool) -> list[object]:
    from edgekit.devices.keeper_messages import kind_of, users_of

    return [
        device.name,
        *((device.host or "here",) * hosts),
        device.key or f"({device.board})",
        kind_of(device) or None,
        device.state,
        duration(max(now - device.since, 0)),
        users_of(device, now) or None,
        None if device.load is None else f"{device.load:.2f}",
        None if device.temperature is None else number(round(device.temperature)),
        device.sessions,
        _why(device, now).removeprefix(": ") or None,
    ]


def _why(one: DeviceStatus | HostStatus, now: float) -> str:
    again = "" if one.again_at is None else f"; again in {duration(max(one.again_at - now, 0))}"
    return f": {one.reason}{again}" if one.reason or again else ""
