"""Give every parser damaged data: python -m fuzz [--seconds 60 | --tries N] [--only NAME ...].

Each core has a process that takes target after target. Seconds are shared out among the targets.
Tries are for each target: with the same seed, they are the same on a fast machine and on a slow
one. Data that makes a parser fail is written to tests/fuzz/crashes, where the tests find it; then
this program ends with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from fuzz.effort import Effort
from fuzz.native import native_targets
from fuzz.targets import all_targets
from fuzz.trying import fuzz


def main() -> int:
    chosen = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    chosen.add_argument("--seconds", type=float, default=60.0)
    chosen.add_argument("--tries", type=int, help="for each parser, instead of a time")
    chosen.add_argument("--seed", type=int, default=int(time.time()))
    chosen.add_argument("--only", nargs="*", default=(), help="names, with - for a space")
    asked = chosen.parse_args()
    only = {name.replace("-", " ") for name in asked.only}
    if unknown := only - {*all_targets(), *native_targets()}:
        chosen.error(f"no parser is called {', '.join(sorted(unknown))}")
    names = [name for name in all_targets() if not only or name in only]
    native = [name for name in native_targets() if not only or name in only]
    count, at_once = len(names) + len(native), len(os.sched_getaffinity(0))
    one = partial(
        fuzz, effort=Effort(asked.seconds * at_once / max(1, count), asked.tries), seed=asked.seed
    )
    print(f"{len(names)} parsers in Python, {len(native)} in C and C++; --seed {asked.seed}")
    sys.stdout.flush()
    # Spawned, because a fork has none of the threads of what this process has loaded.
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        found = sum(pool.map(one, [*names, *native]))
    print(f"{found} faults" + (", see tests/fuzz/crashes" if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
