"""The process that runs LoadGen once: it can be ended at any moment, and LoadGen itself can't.

LoadGen also counts its tests in a process, and calls a second one invalid.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from edgekit.base.child import Channel
from edgekit.base.errors import InputError, MissingToolError
from edgekit.base.failure import failure_of
from edgekit.base.options import option
from edgekit.base.wording import counted
from edgekit.verbs.mlperf.messages import Ended, Load, Query, Test


def main() -> None:
    channel = Channel()
    test: Test = channel.next()
    try:
        channel.send(_run(test, channel))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        channel.send(failure_of(error))
    channel.end()


def _run(test: Test, channel: Channel) -> Ended:
    loadgen = _loadgen()

    def load(places: Sequence[int]) -> None:
        channel.send(Load(tuple(places)))
        channel.next()

    def issue(samples: Sequence[Any]) -> None:
        channel.send(Query(tuple(sample.index for sample in samples)))
        for sample in samples:
            answer = bytearray(channel.next())
            memory = (ctypes.c_char * len(answer)).from_buffer(answer)
            response = loadgen.QuerySampleResponse(sample.id, ctypes.addressof(memory), len(answer))
            loadgen.QuerySamplesComplete([response])

    settings = loadgen.TestSettings()
    settings.FromConfig(str(test.rules), test.benchmark, test.scenario, 1)
    settings.scenario = getattr(loadgen.TestScenario, test.scenario)
    modes = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}
    settings.mode = getattr(loadgen.TestMode, modes[test.mode])
    needed = settings.performance_sample_count_override
    if needed > test.samples:  # LoadGen would ask for samples that do not exist
        raise InputError(
            f"MLPerf's {test.benchmark} is measured on {counted(needed, 'sample')}, and the data "
            f"set has {test.samples:,}",
            hint=f"give more samples, or leave out {option('benchmark')}",
        )
    log = loadgen.LogSettings()
    log.log_output.outdir = str(test.logs)
    log.log_output.prefix = test.prefix
    log.enable_trace = False
    system = loadgen.ConstructSUT(issue, lambda: None)
    library = loadgen.ConstructQSL(test.samples, test.in_memory, load, lambda places: None)
    loadgen.StartTestWithLogSettings(system, library, settings, log, "")
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(system)
    return Ended(_version())


def _loadgen() -> Any:
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise MissingToolError(
            "MLPerf's LoadGen is not installed", hint="pip install 'edgekit[mlperf]'"
        ) from error
    return mlperf_loadgen


def _version() -> str:
    from importlib.metadata import version

    return version("mlcommons-loadgen")


if __name__ == "__main__":
    main()
