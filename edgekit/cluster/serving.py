"""Runs a scheduler or a worker of a cluster in this process, over TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any

import dask
import distributed
from distributed.security import Security

from edgekit.base.decode import decode_json
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.cluster.certificates import Credentials, checked
from edgekit.cluster.place import DEFAULT_PORT

_LARGEST = 1_000_000
_AGAIN_SECONDS = (1.0, 2.0, 5.0, 10.0)
"""Waits between a worker's attempts to reach its scheduler again."""

SECONDS_TO_CONNECT = 10.0
_PAGES = "distributed.scheduler.http.routes"
SETTINGS = {
    # A task that two workers died of is at fault.
    "distributed.scheduler.allowed-failures": 1,
    # A worker whose network was cut.
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.comm.require-encryption": True,
    # The waits between attempts double as long as this: a scheduler that was gone for a minute
    # would be looked for a minute later.
    "distributed.comm.timeouts.connect": f"{SECONDS_TO_CONNECT:g}s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.admin.tick.limit": "30s",
    # Pages that need no certificate; a dashboard that is asked for needs them.
    "distributed.worker.http.routes": [],
    _PAGES: [],
    # The compilers are children of the worker, and their memory is not its own.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}
"""Dask's settings for all ends."""


@dataclass(frozen=True)
class Serving:
    """A scheduler that is ready."""

    address: str
    dashboard: str | None
    """The URL of Dask's own page, on this host's loopback; None without one."""


def hush(level: int = logging.WARNING) -> None:
    """Keep Dask from logging what is below a level: it sets one for each of its parts."""
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(level)


def security_of(credentials: Credentials) -> Security:
    """Return Dask's form of the credentials, for every role."""
    shown = {
        f"tls_{role}_{part}": text
        for role in ("client", "scheduler", "worker")
        for part, text in (("cert", credentials.certificate), ("key", credentials.key))
    }
    return Security(tls_ca_file=credentials.authority, require_encryption=True, **shown)


def credentials_from_input() -> Credentials:
    """Read credentials from a line of the standard input."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LARGEST:
        read = os.read(0, 65536)
        if not read:
            break
        line += read
    try:
        return checked(decode_json(Credentials, line), "the standard input")
    except ValueError as error:
        raise UsageError("the standard input holds no credentials", hint=None) from error


def credentials_as_line(credentials: Credentials) -> bytes:
    return json.dumps(asdict(credentials)).encode() + b"\n"


def run_scheduler(
    listen: str,
    credentials: Credentials,
    started: Callable[[Serving], None],
    *,
    dashboard: int | None = None,
    until_input_ends: bool = False,
) -> None:
    """Run a scheduler at `HOST:PORT` until Ctrl-C. `dashboard` is a port of the loopback."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")

    async def serve() -> None:
        scheduler = distributed.Scheduler(
            host=host,
            port=int(port or DEFAULT_PORT),
            security=security_of(credentials),
            protocol="tls",
            dashboard=dashboard is not None,
            dashboard_address=f"127.0.0.1:{dashboard or 0}",
        )
        async with scheduler:
            page = f"http://127.0.0.1:{scheduler.services['dashboard'].port}/status"
            started(Serving(scheduler.address, None if dashboard is None else page))
            await scheduler.finished()

    pages = {} if dashboard is None else {_PAGES: dask.config.get(_PAGES)}
    with dask.config.set({**SETTINGS, **pages}):
        _run(serve(), until_input_ends, f"a scheduler can't listen at {listen}")


def run_worker(
    address: str,
    lanes: int | None,
    name: str | None,
    credentials: Credentials,
    events: Events,
    *,
    until_input_ends: bool = False,
) -> None:
    """Work for a scheduler until Ctrl-C; if it is gone, wait until there is one again."""
    scheduler = address.partition("//")[2].rpartition(":")[0].strip("[]")

    async def serve(folder: str) -> None:
        attempt = 0
        while True:
            worker = distributed.Worker(
                address,
                host=own_address(scheduler),
                nthreads=lanes or len(os.sched_getaffinity(0)),
                name=name,
                security=security_of(credentials),
                local_directory=folder,
                memory_limit=0,
                dashboard=False,
                dashboard_address="127.0.0.1:0",
            )
            try:
                async with worker:
                    events.note(f"works for {address} as {worker.address}")
                    attempt = 0
                    await worker.finished()
                reason = "the connection ended"
            except (OSError, TimeoutError, asyncio.TimeoutError, RuntimeError) as error:
                reason = str(error).strip().splitlines()[0][:300] if str(error) else "no answer"
            wait = _AGAIN_SECONDS[min(attempt, len(_AGAIN_SECONDS) - 1)]
            attempt += 1
            events.warn(f"{address} is not there: {reason}; tries again in {wait:g} s")
            await asyncio.sleep(wait)

    with scratch_directory(cache_dir() / "cluster") as folder, dask.config.set(SETTINGS):
        _run(serve(str(folder)), until_input_ends, f"a worker can't work for {address}")


def own_address(host: str) -> str:
    """Return this host's address on the way to another, which listens on no other."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(address)
            return str(way.getsockname()[0])
    except OSError as error:
        raise DeviceError(
            f"{host} is not to be found: {error.strerror}",
            hint="name hosts as DNS knows them; aliases of ~/.ssh/config have no address here",
        ) from error


def _run(serving: Coroutine[Any, Any, None], until_input_ends: bool, failure: str) -> None:
    hush()
    try:
        asyncio.run(_serve_until_input_ends(serving) if until_input_ends else serving)
    except OSError as error:
        raise DeviceError(f"{failure}: {error.strerror or error}", hint=None) from error


async def _serve_until_input_ends(serving: Coroutine[Any, Any, None]) -> None:
    """Serve, and stop when the standard input ends, at whatever stage that is."""
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(0, 65536):
            loop.remove_reader(0)
            ended.set()
            task.cancel()

    loop.add_reader(0, read)
    try:
        await task
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
    finally:
        loop.remove_reader(0)
