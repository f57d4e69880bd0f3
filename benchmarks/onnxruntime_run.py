"""onnxruntime in a process of its own, all optimisations on: times, memory, and its own profile.

python -m benchmarks.onnxruntime_run model.onnx threads seconds [--profile] < inputs.npz
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

FEWEST_RUNS = 3
WARMUP = 2


@dataclass(frozen=True)
class Measured:
    seconds: tuple[float, ...]
    memory: int
    """Bytes that loading and running the model added at the peak."""
    operators: dict[str, float]
    """Seconds of one inference by operator, from its own profiler; empty where none was asked."""


def measure(
    model: Path,
    inputs: dict[str, np.ndarray],
    threads: int,
    seconds: float,
    profile: bool = False,
) -> Measured:
    stream = io.BytesIO()
    np.savez(stream, **inputs)  # type: ignore[arg-type]
    command = [sys.executable, "-m", "benchmarks.onnxruntime_run"]
    command += [str(model), str(threads), str(seconds), *(["--profile"] if profile else [])]
    done = subprocess.run(
        command,
        input=stream.getvalue(),
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"ORT_DISABLE_TELEMETRY": "1"},
    )
    answer = json.loads(done.stdout)
    return Measured(tuple(answer["seconds"]), answer["memory"], answer["operators"])


def main() -> None:
    parser = argparse.ArgumentParser(description="onnxruntime, timed")
    parser.add_argument("model", type=Path)
    parser.add_argument("threads", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as archive:
        inputs = dict(archive)
    import onnxruntime

    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        settings.profile_file_prefix = str(Path(folder) / "profile")
        settings.enable_profiling = options.profile
        session = onnxruntime.InferenceSession(
            str(options.model), settings, providers=["CPUExecutionProvider"]
        )
        for _ in range(WARMUP):
            session.run(None, inputs)
        taken: list[float] = []
        while len(taken) < FEWEST_RUNS or sum(taken) < options.seconds:
            started = time.perf_counter()
            session.run(None, inputs)
            taken.append(time.perf_counter() - started)
        peak = _resident("VmHWM")
        operators = _operators(Path(session.end_profiling())) if options.profile else {}
    runs = len(taken) + WARMUP
    each = {name: total / runs for name, total in operators.items()}
    print(json.dumps(asdict(Measured(tuple(taken), peak - before, each))))


def _operators(path: Path) -> dict[str, float]:
    """Return the times of all runs together, by operator."""
    totals: dict[str, float] = defaultdict(float)
    for event in json.loads(path.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            totals[event["args"]["op_name"]] += event["dur"] / 1e6
    return dict(totals)


def _resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main()
