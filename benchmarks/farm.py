"""A farm under load: many devices, many clients, and a tracker that is killed on the way.

    python -m benchmarks.farm [--devices 200] [--clients 50] [--requests 20]

Devices are real: edgekit's agent, a process each, behind a keeper as `edgekit farm up` runs it,
without SSH in between. Clients use `edgekit.farm.session`. A tenth of the requests is for boards of
which there are five. What is to hold: every request is served or told why, no lease is lost, and
the tracker's end is survived. Exits with 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.base.errors import EdgekitError

COMMON, RARE = "common", "rare"
RARE_DEVICES = 5
SHARE_OF_RARE = 0.1
THREADS = 10
"""Clients in one process: each of them loads TVM, which is large."""
WAIT_SECONDS = 120.0
SESSION_SECONDS = 60.0
HELD_SECONDS = (0.02, 0.3)
SECONDS_TO_START = 300.0
SECONDS_TO_SEE_A_LEASE = 20.0
ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Request:
    key: str
    latency: float
    """The time from a request to a session that answered."""
    at: float
    lease_seen: bool
    error: str


def keep(devices: int, agent: str, port: int) -> None:
    """The farm, in a process of its own."""
    from edgekit.devices.keeper_messages import FarmStatus
    from edgekit.farm.plan import FarmPlan, Member
    from edgekit.farm.run import run_farm

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    members = tuple(
        Member(f"d{n}", "local", RARE if n < RARE_DEVICES else COMMON) for n in range(devices)
    )
    program = str(ROOT / "simulated_device.py")
    with tempfile.TemporaryDirectory() as workspace:
        worker = (sys.executable, "-I", "-S", program, agent, workspace)

        def started(status: FarmStatus) -> None:
            print(status.pid, flush=True)

        run_farm(FarmPlan(members, port=port, worker=worker), started=started)


def be_clients(first: int, threads: int, requests: int, port: int) -> None:
    """Some of the clients; each request as a line of JSON."""
    from edgekit.base.tvm_compat import load_tvm
    from edgekit.farm.control import farm_status
    from edgekit.farm.session import farm_session
    from edgekit.rpc.protocol import TrackerAddress

    load_tvm()
    saying = threading.Lock()

    def is_leased(purpose: str) -> bool:
        """A session is heard of a moment after it began."""
        deadline = time.monotonic() + SECONDS_TO_SEE_A_LEASE
        while time.monotonic() < deadline:
            leases = [device.lease for device in farm_status().devices]
            if any(lease is not None and lease.purpose == purpose for lease in leases):
                return True
            time.sleep(0.25)
        return False

    def ask(number: int, count: int, chance: random.Random) -> Request:
        key = RARE if chance.random() < SHARE_OF_RARE else COMMON
        purpose = f"request {count} of client {number}"
        began = time.monotonic()
        try:
            with farm_session(
                *(key, purpose, SESSION_SECONDS),
                tracker=TrackerAddress("127.0.0.1", port),
                wait=WAIT_SECONDS,
            ):
                latency = time.monotonic() - began
                time.sleep(chance.uniform(*HELD_SECONDS))
                return Request(key, latency, began, is_leased(purpose), "")
        except EdgekitError as error:
            return Request(key, time.monotonic() - began, began, False, error.message)

    def work(number: int) -> None:
        chance = random.Random(number)
        for count in range(requests):
            line = json.dumps(asdict(ask(number, count, chance)))
            with saying:
                print(line, flush=True)

    workers = [threading.Thread(target=work, args=(first + n,)) for n in range(threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@contextmanager
def farm(devices: int, port: int, environment: dict[str, str]) -> Iterator[int]:
    """The keeper's process, once every device can be had."""
    from edgekit.agent.build import build_runtime
    from edgekit.profiles.board import load_board
    from edgekit.profiles.toolchain import load_toolchain
    from edgekit.rpc.protocol import TrackerAddress, TrackerClient

    toolchain = load_toolchain(load_board("local").toolchain)
    program = build_runtime(toolchain, platform.machine()).program
    words = [sys.executable, "-m", "benchmarks.farm", "--keep", str(devices), str(program)]
    keeper = subprocess.Popen(
        [*words, str(port)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        deadline = time.monotonic() + SECONDS_TO_START
        free = 0
        while free < devices:
            assert keeper.poll() is None, "the farm ended"
            assert time.monotonic() < deadline, f"only {free} of {devices} devices came up"
            time.sleep(0.5)
            with TrackerClient(TrackerAddress("127.0.0.1", port)) as tracker:
                free = sum(status.free for status in tracker.status())
        yield keeper.pid
    finally:
        keeper.send_signal(signal.SIGTERM)
        keeper.wait(60)


def children(pid: int, word: bytes = b"") -> list[int]:
    """Processes below one, those with a word in their command only."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z" and word in words:
            found.append(int(folder.name))
    return found


def run_clients(
    clients: int, requests: int, port: int, keeper: int, environment: dict[str, str]
) -> tuple[list[Request], list[float], float]:
    """What came of each request, when the tracker was killed, and how long all of it took."""
    processes = []
    for first in range(0, clients, THREADS):
        threads = min(THREADS, clients - first)
        words = [sys.executable, "-m", "benchmarks.farm", "--be-clients"]
        processes.append(
            subprocess.Popen(
                [*words, *map(str, (first, threads, requests, port))],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    found: list[Request] = []
    adding = threading.Lock()

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with adding:
                found.append(Request(**json.loads(line)))

    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    began = time.monotonic()
    readers = [threading.Thread(target=read, args=(process,)) for process in processes]
    for process, reader in zip(processes, readers, strict=True):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        reader.start()
    killed = []
    for share in (1 / 3, 2 / 3):
        while len(found) < share * clients * requests and any(r.is_alive() for r in readers):
            time.sleep(0.05)
        for pid in children(keeper, b"tracker_worker"):
            os.kill(pid, signal.SIGKILL)
            killed.append(time.monotonic())
    for process, reader in zip(processes, readers, strict=True):
        reader.join()
        process.wait()
    return found, killed, time.monotonic() - began


def main() -> int:
    if sys.argv[1:2] == ["--keep"]:
        keep(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return 0
    if sys.argv[1:2] == ["--be-clients"]:
        first, threads, requests, port = map(int, sys.argv[2:])
        be_clients(first, threads, requests, port)
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=20, help="of each client")
    parser.add_argument("--port", type=int, default=9390, help="the tracker's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "XDG_DATA_HOME": f"{folder}/data",
            "XDG_CONFIG_HOME": f"{folder}/config",
        }
        began = time.monotonic()
        with farm(options.devices, options.port, environment) as keeper:
            print(f"{options.devices} devices are up after {time.monotonic() - began:.1f} s")
            found, killed, seconds = run_clients(
                options.clients, options.requests, options.port, keeper, environment
            )
    return report(found, killed, seconds, options.clients * options.requests)


def report(found: list[Request], killed: list[float], seconds: float, expected: int) -> int:
    served = [request for request in found if not request.error]
    errors = Counter(request.error for request in found if request.error)
    lost = sum(not request.lease_seen for request in served)
    print(f"{expected} requests in {seconds:.1f} s, the tracker killed {len(killed)} times")
    print(f"served {len(served)}, told why not {sum(errors.values())}, leases lost {lost}")
    for message, count in errors.most_common():
        print(f"  {count} times: {message}")
    disturbed = [
        request
        for request in served
        if any(request.at - 8 < k < request.at + request.latency for k in killed)
    ]
    calm = [request for request in served if request not in disturbed]
    print(f"{'seconds to a session':32}{'requests':>9}{'median':>8}{'p90':>8}{'p99':>8}{'max':>8}")
    for title, some in (
        ("boards of which there are many", [r for r in calm if r.key == COMMON]),
        (f"of which there are {RARE_DEVICES}", [r for r in calm if r.key == RARE]),
        ("while the tracker was gone", disturbed),
    ):
        if some:
            print(f"{title:32}{len(some):9}{_row([r.latency for r in some])}")
    return 0 if len(found) == expected and not lost and len(killed) == 2 else 1


def _row(latencies: list[float]) -> str:
    if len(latencies) < 2:
        return f"{latencies[0]:8.3f}" * 4
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return "".join(f"{value:8.3f}" for value in (cuts[49], cuts[89], cuts[98], max(latencies)))


if __name__ == "__main__":
    sys.exit(main())
