"""How long the commands take that a person waits for: make bench

Each is a process of its own, started as a shell would; the median of several.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "digits"
EDGEKIT = str(Path(sys.executable).with_name("edgekit"))
MODEL_ON_LOCAL = ("digits.onnx", "--board", "local")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each is timed")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(EXAMPLE / "train.py", folder)
        call(folder, sys.executable, "train.py")
        print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
        print()
        print(f"| command | median of {runs} |")
        print("|---|---|")
        row("python -c pass", median(folder, runs, sys.executable, "-c", "pass"))
        row("edgekit --help", median(folder, runs, EDGEKIT, "--help"))
        row("edgekit boards", median(folder, runs, EDGEKIT, "boards"))
        row("edgekit inspect", median(folder, runs, EDGEKIT, "inspect", "digits.onnx"))
        build = (EDGEKIT, "build", *MODEL_ON_LOCAL)
        row("edgekit build, not cached", median(folder, runs, *build, "--no-cache"))
        call(folder, *build)
        row("edgekit build, cached", median(folder, runs, *build))
        bundle = str(Path("build", "digits-local"))
        row("edgekit run", median(folder, runs, EDGEKIT, "run", bundle))


def median(folder: Path, runs: int, *command: str) -> float:
    return statistics.median(call(folder, *command) for _ in range(runs))


def call(folder: Path, *command: str) -> float:
    """Seconds that the command takes, in a folder and with a cache of its own."""
    environment = os.environ | {"EDGEKIT_CACHE_DIR": str(folder / "cache")}
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return seconds


def row(what: str, seconds: float) -> None:
    print(f"| `{what}` | {seconds:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
