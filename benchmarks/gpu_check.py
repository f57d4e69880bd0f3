"""Everything that needs a GPU of NVIDIA's, in nine minutes: `make gpu-check [OUT=DIR]`.

    PYTHONPATH=.:tests python -m benchmarks.gpu_check --out DIR [--only "compile,GPU"]

Each step runs in a process of its own, within its seconds, which `--seconds` scales. It is done,
failed (with its reason), or missing something: then the table says what. DIR gets gpu-check.json,
gpu-check.txt, and a folder of each step.

Exit code 0 if every step was done, 1 if one failed, 3 if none failed and something was missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.gpu_steps import NEEDS, STEPS, Figures, Step, WrongError

SECONDS = 540
_FIGURES = "figures.json"


@dataclass(frozen=True)
class Outcome:
    step: str
    verdict: Literal["done", "failed", "missing"]
    seconds: float
    said: str = ""
    """What is missing, or why it failed."""
    figures: Figures = field(default_factory=dict)


def main() -> int:
    options = _options()
    out: Path = options.out.absolute()
    if options.step:
        return _run_here(next(step for step in STEPS if step.name == options.step), out)
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.seconds
    wanted = [word.strip() for word in options.only.split(",") if word.strip()]
    outcomes = []
    for step in STEPS:
        if not wanted or step.name in wanted:
            outcomes.append(_outcome(step, out, ends, options.seconds / SECONDS))
            print(_line(outcomes[-1]), flush=True)
    counts = {one: sum(o.verdict == one for o in outcomes) for one in ("done", "failed", "missing")}
    total = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(total)
    text = "\n".join([*map(_line, outcomes), total, ""])
    (out / "gpu-check.txt").write_text(text, encoding="utf-8")
    described = {"steps": [asdict(one) for one in outcomes], "counts": counts}
    (out / "gpu-check.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return 1 if counts["failed"] else 3 if counts["missing"] else 0


def _outcome(step: Step, out: Path, ends: float, patience: float) -> Outcome:
    missing = [said for need in step.needs if (said := NEEDS[need]())]
    if missing:
        return Outcome(step.name, "missing", 0.0, "; ".join(missing))
    limit = min(patience * step.seconds, ends - time.monotonic())
    if limit <= 1:
        return Outcome(step.name, "missing", 0.0, "no time is left: run it alone with --only")
    folder = out / step.name.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--step", step.name]
    started = time.monotonic()
    with (folder / "log.txt").open("wb") as log:
        try:
            status = subprocess.run(
                [*command, "--out", str(folder)], stdout=log, stderr=log, timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return Outcome(step.name, "failed", limit, f"no end after {limit:.0f} s")
    seconds = round(time.monotonic() - started, 1)
    if status == 0:
        figures = json.loads((folder / _FIGURES).read_text(encoding="utf-8"))
        return Outcome(step.name, "done", seconds, figures=figures)
    lines = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = lines[-1] if lines else f"exit code {status}"
    return Outcome(step.name, "failed", seconds, said)


def _run_here(step: Step, folder: Path) -> int:
    try:
        figures = step.work(folder)
    except WrongError as error:
        print(error, file=sys.stderr)
        return 1
    (folder / _FIGURES).write_text(json.dumps(figures), encoding="utf-8")
    return 0


def _line(outcome: Outcome) -> str:
    figures = ", ".join(f"{name} {value}" for name, value in outcome.figures.items())
    return (
        f"{outcome.verdict:8}{outcome.step:15}{outcome.seconds:6.1f} s  {outcome.said or figures}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/gpu-check"))
    parser.add_argument("--only", default="", help="the steps to run, with commas between them")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the most for all")
    parser.add_argument("--step", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
