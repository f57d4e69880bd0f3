"""Give every parser damaged data: python -m fuzz [--seconds 60 | --tries N] [--only NAME ...].

Seconds are shared out among the targets. Tries are for each target: with the same seed, they are
the same on a fast machine and on a slow one. Data that makes a parser fail is written to
tests/fuzz/crashes, where the tests find it; then this program ends with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from fuzz.crashes import crashes_of, keep_crash
from fuzz.effort import Effort
from fuzz.mutation import damaged
from fuzz.native import native_targets, run_native
from fuzz.targets import Target, all_targets, place_of

LONGEST_LIST = 500
SLOW_SECONDS = 20.0


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
    targets = {name: t for name, t in all_targets().items() if not only or name in only}
    native = [name for name in native_targets() if not only or name in only]
    effort = Effort(asked.seconds / max(1, len(targets) + len(native)), asked.tries)
    print(f"{len(targets)} parsers in Python, {len(native)} in C and C++; --seed {asked.seed}")
    found = 0
    for target in targets.values():
        found += fuzz_one(target, effort, Random(f"{asked.seed} {target.name}"))
    for name in native:
        found += run_native(name, effort, asked.seed)
    print(f"{found} faults" + (", see tests/fuzz/crashes" if found else ""))
    return 1 if found else 0


def fuzz_one(target: Target, effort: Effort, chance: Random) -> int:
    """Try one target; return the number of different faults."""
    known = [*target.seeds(), *crashes_of(target.name).values()]
    places: set[str] = set()
    faults: dict[str, bytes] = {}
    tried, until = 0, 0.0
    waiting = list(known)
    while waiting or not effort.is_spent(tried, until):
        data = waiting.pop() if waiting else damaged(known, chance)
        began = time.process_time()
        outcome = target.try_with(data)
        if not waiting and not until:
            until = time.monotonic() + effort.seconds  # what is imported first is not counted
        error = outcome.fault
        tried += 1
        if time.process_time() - began > SLOW_SECONDS:
            error = error or TimeoutError("it took too long")
        if error is None:
            if outcome.refused_at not in places and len(known) < LONGEST_LIST:
                places.add(outcome.refused_at)
                known.append(data)
            continue
        where = place_of(error)
        if where not in faults:
            faults[where] = data
            path = keep_crash(target.name, data)
            print(f"FAULT in {target.name}: {type(error).__name__}: {str(error)[:200]} ({where})")
            print(f"  kept as {path}")
    print(f"{target.name:16} {tried:7} tries, refused in {len(places)} ways, {len(faults)} faults")
    sys.stdout.flush()
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
