"""How fast `edgekit tune` gets through candidates, and what it finds.

    python -m benchmarks.tuning throughput    beside TVM's own MetaSchedule, on the same two servers
    python -m benchmarks.tuning scaling       one device and eight, each of which takes its time
    python -m benchmarks.tuning networks      MobileNetV2 and ResNet-18, before and after

Stock MetaSchedule gets the mildest cures that let it run with the pinned TVM: its builders import
TVM's tensor intrinsics in seconds rather than in more than a minute, which its own time-out is
shorter than, and its runner fills inputs from here, since the servers are edgekit's, which lack the
function that fills them there. It measures each candidate for as long as edgekit does. It needs
cloudpickle, which edgekit does not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import networks
from edgekit.build import BuildRequest
from edgekit.events import Event, Events, StageProgress, Warned
from edgekit.request import make_request
from edgekit.rpc.protocol import LOOPBACK, TrackerAddress
from edgekit.store.database import close_store, open_store
from edgekit.store.moments import seconds_since
from edgekit.store.tuning import progress_of
from edgekit.tune import Effort, TuneReport, tune
from edgekit.tune_devices import Pool, local_plan
from edgekit.tuning.servers import Plan, served
from edgekit.tuning.work import FindTasks
from edgekit.tvm_compat import load_tensor_intrinsics, load_tvm

_KEY = "here"
_SERVERS = 2
_DEVICES = (1, 8)
_PAUSE_US = 100_000
_EFFORT = {"number": 1, "repeat": 5, "min_repeat_ms": 4}
_FAILED = 1e6
_NETWORKS = ("MobileNetV2", "ResNet-18")


def main() -> None:
    if sys.argv[1:2] == ["stock"]:
        model, work, port, trials = sys.argv[2:]
        stock(Path(model), Path(work), int(port), int(trials))
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("throughput", "scaling", "networks"))
    parser.add_argument("--seconds", type=float, default=120.0, help="of each search")
    parser.add_argument("--trials", type=int, default=256, help="of each search for throughput")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for MetaSchedule")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGEKIT_STORE"] = f"sqlite:///{folder / 'store.db'}"
        if options.what == "throughput":
            throughput(folder, options.trials, options.limit)
        elif options.what == "scaling":
            scaling(folder, options.seconds)
        else:
            tuned_networks(folder, options.seconds)


def throughput(folder: Path, trials: int, limit: float) -> None:
    """Candidates that were measured, a minute, from the start to the end, or as far as MetaSchedule
    comes in the time that it is given."""
    request = _request(_several_convolutions(), folder)
    with _pool(request, folder, _SERVERS, shared_key=True) as pool:
        report = _searched(request, pool, Effort(trials=trials, again=True))
        ours = 60 * _measured(report) / report.seconds
        print(f"edgekit      {ours:8.1f} a minute ({_measured(report)} in {report.seconds:.0f} s)")
        count, seconds = _stock(request, folder, pool.tracker, trials, limit)
        stock = 60 * count / seconds
        print(f"MetaSchedule {stock:8.1f} a minute ({count} in {seconds:.0f} s)")
        if not count:
            raise SystemExit("MetaSchedule measured nothing in its time: give it a longer --limit")
        print(f"ratio        {ours / stock:8.2f}")


def scaling(folder: Path, seconds: float) -> None:
    """Devices that take a fixed time for each run, without using the CPU."""
    request = _request(_several_convolutions(), folder)
    rates = []
    for devices in _DEVICES:
        with _pool(request, folder, devices) as pool:
            effort = Effort(seconds=seconds, again=True, pause_us=_PAUSE_US)
            report = _searched(request, pool, effort)
        rates.append(60 * _rate(report))
        print(f"{devices} devices: {rates[-1]:7.1f} candidates a minute")
    print(f"{rates[-1] / rates[0]:.2f} times as many")


def tuned_networks(folder: Path, seconds: float) -> None:
    """Kernels of one inference by the rules and as they were tuned."""
    for name in _NETWORKS:
        request = _request(networks.build(name), folder)
        with _pool(request, folder, 1) as pool:
            report = _searched(request, pool, Effort(seconds=seconds))
        print(
            f"{name}: {report.own_us / 1e3:.2f} ms by the rules, {report.best_us / 1e3:.2f} ms "
            f"tuned, {report.trials} trials in {report.seconds:.0f} s"
        )


def _searched(request: BuildRequest, pool: Pool, effort: Effort) -> TuneReport:
    def told(event: Event) -> None:
        if isinstance(event, Warned):
            print(f"  {event.text}")
        elif isinstance(event, StageProgress):
            print(f"  {event.done}: {event.detail}"[:110], end="\r", flush=True)

    report = tune(request, nullcontext(pool), effort, Events(told))
    print(" " * 110, end="\r")
    return report


def _rate(report: TuneReport) -> float:
    """Trials a second, from when the first batch of them came back: before that, every kernel is
    measured as its rule has it."""
    store = open_store()
    points = [point for point in progress_of(store, report.session) if point.trials]
    close_store(store)
    first, last = points[0], points[-1]
    seconds = seconds_since(first.at) - seconds_since(last.at)
    return (last.trials - first.trials) / seconds


def _measured(report: TuneReport) -> int:
    return report.trials - sum(report.errors.values())


@contextmanager
def _pool(
    request: BuildRequest, folder: Path, count: int, *, shared_key: bool = False
) -> Iterator[Pool]:
    """This machine, several times."""
    names = [f"{_KEY}{number}" for number in range(count)]
    workspace = folder / f"servers{count}"
    workspace.mkdir(exist_ok=True)

    def plans(tracker: TrackerAddress) -> Sequence[tuple[str, Plan]]:
        return [
            (name, local_plan(request.board, _KEY if shared_key else name, tracker, workspace))
            for name in names
        ]

    with served(plans, lambda name, text: print(f"  {name}: {text}")) as servers:
        keys = tuple(_KEY if shared_key else name for name in names)
        yield Pool(servers.tracker, tuple(names), keys, servers.name_of)


def _stock(
    request: BuildRequest, folder: Path, tracker: TrackerAddress, trials: int, limit: float
) -> tuple[int, float]:
    """How many candidates stock MetaSchedule measured of the same kernels, and in how long: in a
    process of its own, which is ended when its time is over."""
    work = folder / "stock"
    work.mkdir()
    words = [str(request.source.path), str(work), str(tracker.port), str(trials)]
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.tuning", "stock", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=limit)
            if process.returncode:
                raise SystemExit(errors.decode(errors="replace")[-2000:])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return _timed_in(work / "database_tuning_record.json"), time.monotonic() - started


def _timed_in(records: Path) -> int:
    """A failure is written down as a very long time."""
    lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    found = [json.loads(line)[1][1] for line in lines]
    return sum(bool(times) and float(times[0]) < _FAILED for times in found)


def stock(model: Path, work: Path, port: int, trials: int) -> None:
    tvm = load_tvm()
    load_tensor_intrinsics()
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.builder import LocalBuilder
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RPCRunner

    from edgekit.schedules.machine import machine_of
    from edgekit.tuning.scout import tasks_of

    request = make_request(model, "local", None, {}, {}, offload=())
    target = tvm.target.Target(request.board.target.as_json())
    order = FindTasks(request.source, request.board.target, request.offload, seed=0, yields=False)
    tasks = [task for task in tasks_of(order, target, machine_of(target)) if task.traced]
    contexts = [
        meta_schedule.TuneContext(
            mod=tvm.ir.load_json(task.subject.function),
            target=target,
            space_generator="post-order-apply",
            search_strategy="evolutionary",
            task_name=f"kernel{number}",
            rand_state=number + 1,
        )
        for number, task in enumerate(tasks)
    ]
    meta_schedule.tune.tune_tasks(
        tasks=contexts,
        task_weights=[float(task.calls) for task in tasks],
        work_dir=str(work),
        max_trials_global=trials,
        num_trials_per_iter=16,
        builder=LocalBuilder(initializer=_cured),
        runner=RPCRunner(
            RPCConfig(LOOPBACK, port, _KEY, 1, 60),
            EvaluatorConfig(**_EFFORT),
            f_alloc_argument=_filled_from_here,
            max_workers=_SERVERS,
            initializer=_cured,
        ),
        database=meta_schedule.database.JSONDatabase(work_dir=str(work)),
        cost_model="random",
    )


def _cured() -> None:
    load_tensor_intrinsics()


def _filled_from_here(session: Any, device: Any, infos: Any, repeats: int) -> list[list[Any]]:
    import numpy
    import tvm

    found = []
    for _ in range(repeats):
        arguments = []
        for _, dtype, shape in infos:
            values = numpy.random.default_rng(0).random([int(n) for n in shape])
            arguments.append(tvm.runtime.tensor(values.astype(str(dtype)), device))
        found.append(arguments)
    return found


def _request(model: onnx.ModelProto, folder: Path) -> BuildRequest:
    path = folder / f"{model.graph.name}.onnx"
    onnx.save(model, path)
    return make_request(path, "local", None, {}, {}, offload=())


def _several_convolutions() -> onnx.ModelProto:
    """Kernels of about the size of MobileNet's, each of another shape."""
    chance = np.random.default_rng(0)
    nodes, weights, before, channels = [], [], "x", 16
    for number in range(8):
        more = 16 + 8 * number
        kernel = 1 if number % 2 else 3
        values = chance.standard_normal((more, channels, kernel, kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        pads = [kernel // 2] * 4
        nodes += [
            helper.make_node("Conv", [before, f"w{number}"], [f"c{number}"], pads=pads),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
        ]
        before, channels = f"r{number}", more
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 16, 28, 28))
    result = helper.make_tensor_value_info(before, onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "convolutions", [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    main()
