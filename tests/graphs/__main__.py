"""Random graphs through edgekit: python -m graphs FIRST-LAST [--ways local,c] [--json FILE]

Each seed's graph by nnsmith goes to this machine (`local`), to ncnn and oneDNN (all that they
take), and to portable C, and what comes out is held to onnxruntime. Exits with 1 where a number is
wrong or anything fails. A folder keeps graphs and results, so that the same command goes on where
it was ended; --again runs all of it anew. Graphs that are wrong or fail are copied to failing/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from graphs.environment import graphs_folder, nnsmith_path
from graphs.running import Result, run_seeds
from graphs.ways import WAYS


def main() -> int:
    options = _options()
    first, last = (int(word) for word in options.seeds.split("-"))
    folder: Path = options.folder or graphs_folder()
    _generate(folder, first, last)
    ways = options.ways.split(",")
    log = folder / f"results-{'-'.join(sorted(ways))}.jsonl"
    if options.again:
        log.unlink(missing_ok=True)
    wanted = [seed for seed in range(first, last + 1) if not (folder / f"{seed}.none").exists()]
    results = run_seeds(folder, wanted, ways, log)
    _show(results, ways, options.verbose)
    _keep_failing(folder, results)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if any(result.is_fault for result in results) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="graphs", description=__doc__)
    parser.add_argument("seeds", metavar="FIRST-LAST")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _generate(folder: Path, first: int, last: int) -> None:
    """Generate in a process of its own: nnsmith changes torch."""
    script = Path(__file__).with_name("generate.py")
    subprocess.run(
        [sys.executable, str(script), str(folder), str(first), str(last)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(nnsmith_path()), "PYTHONHASHSEED": "0"},
    )


def _show(results: list[Result], ways: list[str], verbose: bool) -> None:
    words = ("right", "refused", "no oracle", "WRONG", "FAILED")
    print(f"{'way':8}" + "".join(f"{word:>11}" for word in words) + f"{'seconds':>10}")
    for way in ways:
        mine = [result for result in results if result.way == way]
        counts = Counter(result.word for result in mine)
        seconds = sum(result.seconds for result in mine) / max(1, len(mine))
        print(f"{way:8}" + "".join(f"{counts[word]:>11}" for word in words) + f"{seconds:>10.2f}")
    shown = [result for result in results if result.is_fault]
    if verbose:
        shown += [result for result in results if result.word in ("refused", "no oracle")]
    for result in shown:
        print(f"{result.seed:>6} {result.way:8} {result.word}: {result.reason}")


def _keep_failing(folder: Path, results: list[Result]) -> None:
    for result in results:
        if result.is_fault:
            (folder / "failing").mkdir(exist_ok=True)
            shutil.copy(folder / f"{result.seed}.onnx", folder / "failing")


if __name__ == "__main__":
    sys.exit(main())
