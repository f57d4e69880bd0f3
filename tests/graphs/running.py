"""Seeds one after another, each in a fork of this process: TVM is loaded once, and a crash costs
one way of one seed."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SECONDS_A_WAY = 120.0


@dataclass(frozen=True)
class Result:
    seed: int
    way: str
    word: str
    reason: str
    seconds: float

    @property
    def is_fault(self) -> bool:
        return self.word in ("WRONG", "FAILED")


def run_seeds(folder: Path, seeds: Sequence[int], ways: Sequence[str], log: Path) -> list[Result]:
    """Run what the log does not have yet, and return all results of these seeds."""
    known = {(result.seed, result.way): result for result in _read(log)}
    _warm_up()
    started, ran = time.monotonic(), 0
    with log.open("a", encoding="utf-8") as stream:
        for seed in seeds:
            left = [way for way in ways if (seed, way) not in known]
            while left:
                for result in _in_a_fork(folder / f"{seed}.onnx", seed, left):
                    known[seed, result.way] = result
                    left.remove(result.way)
                    stream.write(json.dumps(asdict(result)) + "\n")
                    stream.flush()
                    ran += 1
            if ran and ran % 100 < len(ways):
                print(f"seed {seed}: {ran} runs, {time.monotonic() - started:.0f} s", flush=True)
    return [known[seed, way] for seed in seeds for way in ways]


def _read(log: Path) -> list[Result]:
    if not log.exists():
        return []
    return [Result(**json.loads(line)) for line in log.read_text("utf-8").splitlines()]


def _warm_up() -> None:
    """Load what every seed needs, and start no thread."""
    import onnxruntime  # noqa: F401
    from support import ncnn_lab, onednn_lab  # noqa: F401

    from edgekit.base.tvm_compat import load_tvm

    load_tvm()
    import edgekit.compiler.pipeline
    import edgekit.models.onnx.loading  # noqa: F401

    for backend in ("ncnn", "onednn"):
        ncnn_lab.compiled_lab(backend)


def _in_a_fork(path: Path, seed: int, ways: Sequence[str]) -> list[Result]:
    """The results that a fork gives before it ends; one that dies fails at the way under way."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run(path, seed, ways, writing)
    os.close(writing)
    results: list[Result] = []
    started = time.monotonic()
    with os.fdopen(reading, "rb") as stream:
        while len(results) < len(ways):
            ready, _, _ = select.select([stream], [], [], SECONDS_A_WAY)
            line = stream.readline() if ready else b""
            if not line:
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                reason = "no answer in time" if not ready else f"the process died: {status:#x}"
                seconds = round(time.monotonic() - started, 2)
                return [*results, Result(seed, ways[len(results)], "FAILED", reason, seconds)]
            results.append(Result(**json.loads(line)))
    os.waitpid(pid, 0)
    return results


def _run(path: Path, seed: int, ways: Sequence[str], pipe: int) -> None:
    """Never returns."""
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.environ["TVM_NUM_THREADS"] = "1"
        from graphs.cases import NoGraph, graph_for
        from graphs.ways import WAYS, taken

        started = time.monotonic()
        case = graph_for(path)
        with os.fdopen(pipe, "w", encoding="utf-8") as stream:
            for way in ways:
                outcome = case.outcome if isinstance(case, NoGraph) else taken(WAYS[way], case)
                seconds = round(time.monotonic() - started, 2)
                result = Result(seed, way, outcome.word, outcome.reason, seconds)
                stream.write(json.dumps(asdict(result)) + "\n")
                stream.flush()
                started = time.monotonic()
    except BaseException:  # noqa: BLE001 - a fork must never go on as its parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
