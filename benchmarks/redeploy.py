"""How long a second deployment of the same thing takes, and how much of that is not the run.

    python benchmarks/redeploy.py [--model examples/digits/digits.onnx] [--board rpi4] [--runs 5]

On the board's twin. The run is what somebody who had the agent on the device and a connection to it
would wait for as well: the agent's start, loading the model, one inference and the brief
measurement. The rest is edgekit's own: starting Python, finding the build in the cache, logging in,
taking the device, comparing, noting the deployment.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from edgekit.agent.build import build_agent
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.devices.emulated import emulated_device
from edgekit.devices.linux.connection import connect
from edgekit.devices.linux.lease_client import lease_client
from edgekit.devices.linux.ssh import SshDevice
from edgekit.profiles.board import load_board
from edgekit.verbs.deploy import SHORT_BENCH

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits" / "digits.onnx"
DEPLOY, WITHOUT_BENCH = "deploy again", "deploy again, --no-bench"
AGENT, RUN, BENCH = "start the agent", "load and run", "load and measure briefly"
T = TypeVar("T")


class Phases:
    """Seconds by what they were spent on, a list for each."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def timed(self, what: str, action: Callable[[], T]) -> T:
        began = time.perf_counter()
        result = action()
        self.seconds.setdefault(what, []).append(time.perf_counter() - began)
        return result

    def median(self, *names: str) -> float:
        return sum(statistics.median(self.seconds[name]) for name in names)

    def show(self) -> None:
        for what, seconds in self.seconds.items():
            spread = f"({min(seconds):.2f} to {max(seconds):.2f})"
            print(f"{what:44} {statistics.median(seconds):6.2f} s   {spread}")


def deploy(model: Path, board: str, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "edgekit", "deploy", str(model), "--board", board, "--twin"]
    subprocess.run(
        [*command, "-o", str(folder / "bundle"), "--quiet", *options],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def one_by_one(bundle: Bundle, device: SshDevice, phases: Phases) -> None:
    """What a deployment does on the device, one thing after the other."""
    agent = build_agent(device.toolchain, device.toolchain.triple.partition("-")[0])
    inputs = bundle.reference_inputs()
    log_in = partial(connect, device.entry, known_hosts=device.known_hosts)
    with (
        phases.timed("log in", log_in) as connection,
        lease_client(connection, None, agent.digest) as client,
    ):
        assert phases.timed(AGENT, client.is_running)
        phases.timed("take the device", lambda: client.take(60, "a benchmark", []))
    with device.opened(bundle) as session:
        phases.timed(RUN, lambda: session.run(inputs))
        phases.timed(BENCH, lambda: session.bench(inputs, SHORT_BENCH))
        record = partial(session.make_current, verified=True, median=None, keep=3)
        phases.timed("note the deployment", record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=DIGITS)
    parser.add_argument("--board", default="rpi4")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    board = load_board(arguments.board)
    phases = Phases()
    with tempfile.TemporaryDirectory(prefix="edgekit-bench-") as place:
        folder = Path(place)
        deploy(arguments.model, board.name, folder)
        device = emulated_device(board.name, board, 120)
        bundle = open_bundle(folder / "bundle")
        for _ in range(arguments.runs):
            phases.timed(DEPLOY, lambda: deploy(arguments.model, board.name, folder))
            phases.timed(
                WITHOUT_BENCH, lambda: deploy(arguments.model, board.name, folder, "--no-bench")
            )
            one_by_one(bundle, device, phases)
    print(f"{arguments.model.name} on {board.name}'s twin, {os.cpu_count()} cores, load average "
          f"{os.getloadavg()[0]:.1f}")  # fmt: skip
    phases.show()
    for what, run in ((DEPLOY, (AGENT, RUN, BENCH)), (WITHOUT_BENCH, (AGENT, RUN))):
        rest = phases.median(what) - phases.median(*run)
        print(f"{f'not the run, of {what!r}':44} {rest:6.2f} s")


if __name__ == "__main__":
    main()
