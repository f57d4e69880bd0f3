"""Quantised models with their convolutions and dense layers in a backend's integers, against TVM's.

    python -m benchmarks.quantised     # --filter NAME

The four MLPerf Tiny models, one thread, both ways in turns: a ratio is of two times of one round,
and the table has the median of the ratios with the lowest and the highest. Differences from
LiteRT's reference kernels are over ten seeded inputs of noise; in steps where outputs are integers,
else of the largest output.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.model_results import SEEDS
from benchmarks.model_zoo import MODELS, ZooModel, fetch
from benchmarks.models import PLAN, Error, compare, machine
from edgekit.api.functions import make_request
from edgekit.backends.plan import OffloadPlan
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.local.device import LocalDevice
from edgekit.profiles.offload import Rates
from edgekit.verbs.bench import bench

FAMILY = "MLPerf Tiny "
ROUNDS = 7
EVERYTHING_PAYS = Rates(call_us=-1e12)


@dataclass(frozen=True)
class Row:
    model: str
    regions: int
    ncnn: float
    """Median milliseconds."""
    tvm: float
    ratios: tuple[float, ...]
    """The ratios of ncnn's time to TVM's, one a round."""
    error: Error
    agreed: int | None


def measure(model: ZooModel, folder: Path) -> Row:
    file = fetch(model)
    plain = make_request(file, "local", None, model.shapes, {}, offload=())
    options = {"ncnn": {"int8": True, "threads": 1}}
    offload = OffloadPlan(("ncnn",), options=options, rates=EVERYTHING_PAYS)
    request = replace(plain, offload=offload)
    ours = build(request, folder / "ncnn").bundle
    tvm = build(plain, folder / "tvm").bundle
    error, agreed = compare(model, request, ours)
    times = [(1e3 * _median(ours), 1e3 * _median(tvm)) for _ in range(ROUNDS)]
    return Row(
        model.name.removeprefix(FAMILY),
        len(ours.manifest.regions),
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        tuple(a / b for a, b in times),
        error,
        agreed,
    )


def _median(bundle: Bundle) -> float:
    return bench(bundle, LocalDevice(), PLAN).median


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| model | regions | ncnn ms | TVM ms | ncnn / TVM | largest difference | same answer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = min(row.ratios), max(row.ratios)
        ratio = f"{statistics.median(row.ratios):.2f} ({low:.2f} to {high:.2f})"
        agreed = "–" if row.agreed is None else f"{row.agreed} of {SEEDS}"
        cells = (row.model, row.regions, f"{row.ncnn:.3g}", f"{row.tvm:.3g}", ratio)
        lines.append("| " + " | ".join(map(str, (*cells, row.error, agreed))) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="quantised models in a backend's integers")
    parser.add_argument("--filter", default="", help="only models whose name contains this")
    options = parser.parse_args()
    rows = []
    for model in MODELS:
        if model.name.startswith(FAMILY) and options.filter.lower() in model.name.lower():
            print(f"{model.name} ...", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(model, Path(folder)))
    print(table(rows))
    print(f"\nMeasured on {machine()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
