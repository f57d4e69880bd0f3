"""How fast `edgekit tune` gets through candidates, and what it finds.

    python -m benchmarks.tuning throughput    beside TVM's own MetaSchedule, on the same two servers
    python -m benchmarks.tuning scaling       one device and eight, each of which takes its time
    python -m benchmarks.tuning networks      MobileNetV2 and ResNet-18, before and after

Throughput: both search for the kernels of two convolutions, in turns, as many trials each, on two
of TVM's own RPC servers on this machine, which have the whole of TVM. Stock MetaSchedule is as
shipped, with a random cost model (its own needs xgboost), a connection for each server, and as much
time for each candidate as edgekit's runner gives one that is neither hopeless, which gets less, nor
promising, which gets more. Its one cure is in `stock_cures.py`: without it no build ends in time.
Its clock starts when its builder and runner are up, edgekit's before its own are. What failed is
not counted, on either side. MetaSchedule and TVM's servers need cloudpickle; edgekit does not.

Scaling: every run of a kernel sleeps for a fixed time, long enough for this machine's cores to
compile for eight devices. What is asked is whether a device ever waits for the search, and not
whether two cores could feed eight devices that are faster. A device's rate is from when its first
batch came back to its last; the rates are added up.

Networks: on one thread, `--time` for each network, then in turns with what the rules alone make and
with onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import edgekit.tuning.tune
from benchmarks import slow_builder
from benchmarks.stock_metaschedule import KEY, SERVERS, Came
from benchmarks.tuned_networks import NETWORKS, tuned_network, verdict
from edgekit.api.functions import make_request
from edgekit.base.events import Event, Events, StageProgress, Warned
from edgekit.building.request import BuildRequest
from edgekit.rpc.protocol import TrackerAddress, TrackerClient
from edgekit.rpc.tracker import private_tracker
from edgekit.store.database import close_store, open_store
from edgekit.store.moments import seconds_at
from edgekit.store.tuning import records_of_session
from edgekit.tuning.servers import Plan, Pool, served
from edgekit.tuning.tune import Effort, TuneReport, tune
from edgekit.tuning.tune_devices import local_plan

_DEVICES = (1, 8)
_SECONDS_TO_REGISTER = 120.0
_ONE_BATCH = 0.5
"""Seconds: what comes back together is kept within less."""


@dataclass(frozen=True)
class Rate:
    """The figures of one search."""

    measured: int
    failed: int
    seconds: float

    @property
    def a_minute(self) -> float:
        return 60 * self.measured / self.seconds if self.seconds else 0.0

    def in_words(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.a_minute:7.1f} a minute ({self.measured} in {self.seconds:.0f} s{failed})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("throughput", "scaling", "networks"))
    parser.add_argument("--rounds", type=int, default=2, help="of throughput")
    parser.add_argument("--trials", type=int, default=128, help="of each search for throughput")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each MetaSchedule")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each search for scaling")
    parser.add_argument(
        "--pause", type=int, default=100, help="milliseconds that each run takes for scaling"
    )
    parser.add_argument(
        "--time", type=float, default=600.0, help="seconds of search for each of the networks"
    )
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    options = parser.parse_args()
    print(f"{_machine()}\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGEKIT_STORE"] = f"sqlite:///{folder / 'store.db'}"
        if options.what == "throughput":
            lines = throughput(folder, options.rounds, options.trials, options.limit)
        elif options.what == "scaling":
            lines = scaling(folder, options.seconds, options.pause)
        else:
            lines = tuned_networks(folder, options.filter, options.time)
    print("\n".join(["", *lines]))


def throughput(folder: Path, rounds: int, trials: int, limit: float) -> list[str]:
    """Candidates that were measured, a minute, in turns."""
    request = _request(_two_convolutions(), folder)
    ours, theirs = [], []
    with _whole_tvm_servers() as pool:
        for number in range(rounds):
            ours.append(_ours(request, pool, trials))
            print(f"edgekit      {ours[-1].in_words()}, {_load()}", flush=True)
            work = folder / f"stock{number}"
            theirs.append(_stock(request.source.path, work, pool.tracker, trials, limit))
            print(
                f"MetaSchedule {theirs[-1].in_words()}, load {os.getloadavg()[0]:.1f}", flush=True
            )
    if not all(rate.measured for rate in theirs):
        raise SystemExit("MetaSchedule measured nothing in its time: give it a longer --limit")
    ratios = [mine.a_minute / stock.a_minute for mine, stock in zip(ours, theirs, strict=True)]
    return [
        f"edgekit {_spread([rate.a_minute for rate in ours])} a minute, MetaSchedule "
        f"{_spread([rate.a_minute for rate in theirs])}: {_spread(ratios)} times as many"
    ]


def scaling(folder: Path, seconds: float, pause_ms: int) -> list[str]:
    """Devices that take a fixed time for each run, without using the CPU."""
    request = _request(_several_convolutions(), folder)
    edgekit.tuning.tune.BUILDER = "benchmarks.slow_builder"
    os.environ[slow_builder.PAUSE] = str(1000 * pause_ms)
    rates = []
    for devices in _DEVICES:
        names = tuple(f"device{number}" for number in range(devices))
        with _served_here(request, folder, names, None) as pool:
            report = _searched(request, pool, Effort(seconds=seconds, again=True))
        rates.append(60 * sum(_rates_by_device(report.session)))
        load = os.getloadavg()[0]
        print(
            f"{devices} devices: {rates[-1]:7.1f} candidates a minute, load {load:.1f}", flush=True
        )
    if not all(rates):
        raise SystemExit("a device came to one batch only: give it more --seconds")
    return [f"{rates[-1] / rates[0]:.2f} times as many"]


def tuned_networks(folder: Path, wanted: str, seconds: float) -> list[str]:
    """Never slower than the rules, and how far from onnxruntime."""

    def search(request: BuildRequest) -> TuneReport:
        with _served_here(request, folder, ("here",), 1) as pool:
            return _searched(request, pool, Effort(seconds=seconds))

    found = []
    for name in [name for name in NETWORKS if wanted.lower() in name.lower()]:
        found.append(tuned_network(name, folder, search))
        print(found[-1].in_words(), flush=True)
    return [verdict(found)] if found else []


def _ours(request: BuildRequest, pool: Pool, trials: int) -> Rate:
    report = _searched(request, pool, Effort(trials=trials, again=True))
    failed = sum(report.errors.values())
    return Rate(report.trials - failed, failed, report.seconds)


def _print_warning(event: Event) -> None:
    if isinstance(event, Warned):
        print(f"  {event.text}", flush=True)


def _searched(request: BuildRequest, pool: Pool, effort: Effort) -> TuneReport:
    def told(event: Event) -> None:
        _print_warning(event)
        if isinstance(event, StageProgress) and sys.stdout.isatty():
            print(f"  {event.done}: {event.detail}"[:110].ljust(110), end="\r", flush=True)

    return tune(request, nullcontext(pool), effort, Events(told))


def _stock(model: Path, work: Path, tracker: TrackerAddress, trials: int, limit: float) -> Rate:
    """Run in a process of its own, which is ended when its time is over."""
    work.mkdir()
    words = [str(model), str(work), str(tracker.port), str(trials)]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stock_metaschedule", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            said, errors = process.communicate(timeout=limit)
            if process.returncode:
                raise SystemExit(errors.decode(errors="replace")[-2000:])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
    came = [Came(**json.loads(line)) for line in said.splitlines()]
    for reason, count in sum((Counter(batch.failed) for batch in came), Counter()).items():
        print(f"  {count} failed: {reason}")
    return Rate(
        sum(batch.measured for batch in came),
        sum(sum(batch.failed.values()) for batch in came),
        came[-1].seconds if came else limit,
    )


def _rates_by_device(session: str) -> list[float]:
    """Candidates a second of each, from when its first batch of them came back to its last."""
    store = open_store()
    records = records_of_session(store, session)
    close_store(store)
    came: dict[str, list[float]] = {}
    for record in records:
        # The rule's own way is no candidate; it is kept with itself beside it.
        if record.error is None and record.best_us != record.own_us:
            came.setdefault(record.device, []).append(seconds_at(record.measured_at))
    return [_rate(moments) for moments in came.values()]


def _rate(moments: Sequence[float]) -> float:
    """The candidates of a batch are kept at the same moment, or nearly."""
    first = min(moments)
    later = [moment for moment in moments if moment > first + _ONE_BATCH]
    return len(later) / (max(later) - first) if later else 0.0


@contextmanager
def _whole_tvm_servers() -> Iterator[Pool]:
    """TVM's own RPC servers, with all of TVM: stock MetaSchedule has candidates linked there, and
    inputs filled by a function that smaller servers lack."""
    with private_tracker() as tracker, ExitStack() as closing:
        for _ in range(SERVERS):
            closing.enter_context(_whole_tvm_server(tracker))
        deadline = time.monotonic() + _SECONDS_TO_REGISTER
        with TrackerClient(tracker) as client:
            while sum(status.devices for status in client.status() if status.key == KEY) < SERVERS:
                if time.monotonic() > deadline:
                    raise SystemExit("TVM's RPC servers did not register")
                time.sleep(0.2)
        names = tuple(f"{KEY}{number}" for number in range(SERVERS))
        yield Pool(tracker, names, (KEY,) * SERVERS, lambda port: f"port {port}")


@contextmanager
def _whole_tvm_server(tracker: TrackerAddress) -> Iterator[None]:
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.tvm_server"),
            *(KEY, tracker.host, str(tracker.port)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _served_here(
    request: BuildRequest, folder: Path, names: tuple[str, ...], threads: int | None
) -> Iterator[Pool]:
    workspace = folder / "servers"
    workspace.mkdir(exist_ok=True)

    def plans(tracker: TrackerAddress) -> Sequence[tuple[str, Plan]]:
        local = [local_plan(request.board, name, tracker, workspace) for name in names]
        return [(plan.key, replace(plan, threads=threads)) for plan in local]

    with served(plans, Events(_print_warning)) as pool:
        yield pool


def _request(model: onnx.ModelProto, folder: Path) -> BuildRequest:
    path = folder / f"{model.graph.name}.onnx"
    onnx.save(model, path)
    return make_request(path, "local", None, {}, {}, offload=())


def _spread(values: Sequence[float]) -> str:
    """The median, and how far single ones were from it."""
    middle = f"{statistics.median(values):.3g}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.3g} to {max(values):.3g})"


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} CPUs, {_load()}"


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def _two_convolutions() -> onnx.ModelProto:
    return _chain("two_convolutions", 32, (28, 28), ((64, 3), (128, 1)))


def _several_convolutions() -> onnx.ModelProto:
    """Kernels of about the size of MobileNet's, each of another shape."""
    layers = [(16 + 8 * number, 1 if number % 2 else 3) for number in range(8)]
    return _chain("several_convolutions", 16, (28, 28), layers)


def _chain(
    name: str, channels: int, size: tuple[int, int], layers: Sequence[tuple[int, int]]
) -> onnx.ModelProto:
    """Convolutions with a ReLU each; of every layer the channels and the side of its window."""
    chance = np.random.default_rng(0)
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, channels, *size))
    nodes, weights, before = [], [], "x"
    for number, (more, side) in enumerate(layers):
        values = chance.standard_normal((more, channels, side, side)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        pads = [side // 2] * 4
        nodes += [
            helper.make_node("Conv", [before, f"w{number}"], [f"c{number}"], pads=pads),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
        ]
        before, channels = f"r{number}", more
    result = helper.make_tensor_value_info(before, onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, name, [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    main()
