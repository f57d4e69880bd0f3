"""A fleet of simulated boards that follows one registry, and reports to one collector.

    PYTHONPATH=.:tests python -m benchmarks.fleet [--boards 10000] [--minutes 10] [--seconds 60]

The registry, the collector and `rollout tend` are real. The boards only send requests: each as curl
does, by a connection of its own, with the ETag of the rollout that it has. CPU seconds are those of
the serving process, which a busy host does not change; times are.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import psutil  # type: ignore[import-untyped]
from support.bundles import make_bundle
from support.collector import running_collector
from support.registry import RegistryServer, running_registry

import edgekit
from edgekit.base.decode import encode
from edgekit.base.json_text import json_line
from edgekit.registry.address import parse_rollout
from edgekit.registry.keys import new_key
from edgekit.registry.reports import BoardReport, ReportWriter, default_file, read_reports
from edgekit.registry.rollout import Rollout
from edgekit.registry.tending import tally

AT_ONCE = 32
"""Connections at once, where the question is what a server can do at most."""
ACCEPT = "Accept: application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class Answer:
    status: int
    received: int
    etag: str


async def ask(port: int, head: list[str], body: bytes = b"") -> Answer:
    """Send one request by a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [*head, "Host: 127.0.0.1", "Connection: close", f"Content-Length: {len(body)}"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        data = await reader.read(-1)
    finally:
        writer.close()
    lines = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    return Answer(int(lines[0].split()[1]), len(data), fields.get("etag", ""))


@contextmanager
def cpu_of(process: psutil.Process, name: str, count: Callable[[], int]) -> Iterator[None]:
    """Print the CPU time of a process for each of the requests that the block makes."""

    def used() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before, began = used(), time.monotonic()
    yield
    seconds = time.monotonic() - began
    each = (used() - before) / count() * 1e3
    print(f"{name}: {count() / seconds:.0f} a second, {each:.2f} ms of CPU each", flush=True)


async def at_once(seconds: float, one: Callable[[], Awaitable[None]]) -> None:
    """Repeat something in many tasks, each without a pause."""
    end = time.monotonic() + seconds

    async def again() -> None:
        while time.monotonic() < end:
            await one()

    await asyncio.gather(*(again() for _ in range(AT_ONCE)))


async def poll(port: int, boards: int, minutes: float, seconds: float) -> None:
    """Let boards ask as their timers do, and then as fast as the registry answers."""
    (server,) = (each for each in psutil.net_connections("tcp") if listens(each, port))
    process = psutil.Process(server.pid)
    question = ["GET /v2/net/manifests/rollout-kitchen HTTP/1.1", ACCEPT]
    whole = await ask(port, question)
    assert whole.status == 200, whole
    known = [*question, f"If-None-Match: {whole.etag}"]
    waited: list[float] = []
    sent: list[int] = []

    async def board() -> None:
        began = time.monotonic()
        answer = await ask(port, known)
        assert answer.status == 304, answer
        waited.append(time.monotonic() - began)
        sent.append(answer.received)

    chance, running = random.Random(20), set()
    rate = boards / (minutes * 60)
    with cpu_of(process, f"{boards:,} boards, a question in {minutes:g} min", lambda: len(waited)):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            running.add(asyncio.create_task(board()))
            await asyncio.sleep(chance.expovariate(rate))
        await asyncio.gather(*running)
    hundredths = quantiles(waited, n=100)
    print(
        f"  the answer after {hundredths[49] * 1e3:.1f} ms (median), {hundredths[98] * 1e3:.1f} ms "
        f"(99 of 100), {max(waited) * 1e3:.1f} ms (longest); {sent[0]} bytes, and {whole.received} "
        "bytes when there is something new",
        flush=True,
    )
    waited.clear()
    with cpu_of(process, "as fast as the registry answers", lambda: len(waited)):
        await at_once(seconds / 4, board)


async def report(url_port: int, rollout: Rollout, seconds: float) -> None:
    """Let boards report as fast as the collector answers."""
    (server,) = (each for each in psutil.net_connections("tcp") if listens(each, url_port))
    head = ["POST /reports HTTP/1.1", "Content-Type: application/json"]
    kept = 0

    async def board() -> None:
        nonlocal kept
        kept += 1
        body = json_line(encode(reported(rollout, f"board-{kept}"))).encode()
        answer = await ask(url_port, head, body)
        assert answer.status == 204, answer

    with cpu_of(psutil.Process(server.pid), "reports to the collector", lambda: kept):
        await at_once(seconds / 4, board)


def listens(connection: object, port: int) -> bool:
    address = getattr(connection, "laddr", None)
    is_server = getattr(connection, "status", "") == psutil.CONN_LISTEN
    return is_server and bool(address) and address.port == port  # type: ignore[union-attr]


def reported(rollout: Rollout, board: str) -> BoardReport:
    words = (rollout.name, rollout.channel, board, rollout.version.manifest, rollout.counter)
    return BoardReport(*words, "updated", True, 1_000_000)


def count(rollout: Rollout, boards: int) -> None:
    """Count the reports of a whole fleet, as `rollout tend` does."""
    place = parse_rollout("oci://127.0.0.1/net", rollout.channel)
    file = default_file().with_name("many.sqlite")
    with closing(ReportWriter(file)) as writer:
        for number in range(boards):
            writer.keep(reported(rollout, f"board-{number}"))
    began, before = time.monotonic(), time.process_time()
    seen = tally(rollout, read_reports(file, place))
    seconds, cpu = time.monotonic() - began, time.process_time() - before
    assert seen.reported > 0
    print(
        f"{boards:,} reports counted in {seconds:.1f} s ({cpu:.1f} s of CPU), from a file of "
        f"{file.stat().st_size / 1e6:.0f} MB"
    )


def published(registry: RegistryServer, folder: Path) -> Rollout:
    new_key("fleet")
    workspace = edgekit.Workspace(folder)
    workspace.publish(make_bundle(folder / "bundle"), registry.address("net:1"))
    return workspace.start_rollout(registry.address("net:1"), "kitchen", waves="100%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--boards", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--reports", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"XDG_CONFIG_HOME": str(folder / "c"), "XDG_DATA_HOME": str(folder / "d")}
        with running_registry(folder / "registry") as registry:
            rollout = published(registry, folder)
            asyncio.run(poll(registry.port, given.boards, given.minutes, given.seconds))
        with running_collector() as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
            asyncio.run(report(port, rollout, given.seconds))
        count(rollout, given.reports)


if __name__ == "__main__":
    main()
