"""The process that runs one runtime: loads the model, and takes a turn for each message."""

from __future__ import annotations

import time

from edgekit.base import metrics
from edgekit.base.child import Channel
from edgekit.base.errors import EdgekitError, ModelError
from edgekit.base.failure import Failure, failure_of
from edgekit.verbs.beside.contender import MOST_RUNS, Opened, Setup, Turn
from edgekit.verbs.beside.runtimes import RUNTIMES, Loaded

_WARMUP = 2


def main() -> None:
    channel = Channel()
    setup: Setup = channel.next()
    try:
        loaded, opened = _opened(setup)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        channel.send(_blamed(setup, error))
        return
    channel.send(opened)
    while True:
        seconds: float = channel.next()
        try:
            channel.send(_turn(loaded, seconds))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            channel.send(_blamed(setup, error))


def _opened(setup: Setup) -> tuple[Loaded, Opened]:
    runtime = RUNTIMES[setup.runtime]
    module = runtime.opened()
    metrics.reset_peak_memory()
    before = metrics.memory_now()
    loaded = runtime.load(module, setup.given)
    outputs = tuple(loaded.outputs())
    peak = metrics.memory_peak()
    memory = None if before is None or peak is None else max(peak - before, 0)
    return loaded, Opened(outputs, memory)


def _turn(loaded: Loaded, seconds: float) -> Turn:
    for _ in range(_WARMUP):
        loaded.call()
    taken: list[int] = []
    began = time.perf_counter()
    while not taken or (time.perf_counter() - began < seconds and len(taken) < MOST_RUNS):
        started = time.perf_counter_ns()
        loaded.call()
        taken.append(time.perf_counter_ns() - started)
    return Turn(tuple(taken))


def _blamed(setup: Setup, error: Exception) -> Failure:
    if isinstance(error, EdgekitError):
        return failure_of(error)
    title = RUNTIMES[setup.runtime].title
    first, *_ = [*str(error).strip().splitlines(), type(error).__name__]
    return failure_of(
        ModelError(
            f"{title} does not run the model: {first}",
            hint=f"leave {setup.runtime} out of the runtimes",
        )
    )


if __name__ == "__main__":
    main()
