"""One target tried, of either kind: in any process."""

from __future__ import annotations

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


def fuzz(name: str, effort: Effort, seed: int) -> int:
    """Try a target; return the number of different faults."""
    if name in native_targets():
        return run_native(name, effort, seed)
    return _fuzz_python(all_targets()[name], effort, Random(f"{seed} {name}"))


def _fuzz_python(target: Target, effort: Effort, chance: Random) -> int:
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
