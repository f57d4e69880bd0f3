"""How long a twin takes: its image, a start, a second start, a command, a stop; and its memory.

    python benchmarks/twin.py [--board rpi4] [--runs 5]

The figures depend on what else the machine does; the load average is printed with them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from edgekit.profiles.board import Board, load_board
from edgekit.twin.image import ensure_image
from edgekit.twin.machine import StartOptions, down, status, up
from edgekit.twin.recipe import default_recipe


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def row(what: str, seconds: list[float]) -> None:
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    print(f"{what:34} {middle:7.2f} s   ({least:.2f} to {most:.2f}, {len(seconds)} runs)")


def measure(board: Board, runs: int) -> None:
    image = [timed(lambda: ensure_image(default_recipe()))]
    starts, cpu, again, commands, stops, memory = [], [], [], [], [], []
    for _ in range(runs):
        starts.append(timed(lambda: up("bench", board, StartOptions(fresh=True))))
        pid = status("bench").pid
        assert pid is not None
        cpu.append(cpu_seconds(pid))
        again.append(timed(lambda: up("bench", board)))
        command = up("bench", board).access.command("true")
        commands.append(timed(partial(subprocess.run, command, check=True)))
        memory.append(resident_bytes(pid))
        stops.append(timed(lambda: down("bench")))
    row("build the image", image)
    row("up, until a command has run", starts)
    row("  of that, the emulator's CPU time", cpu)
    row("up, running already", again)
    row("ssh, one command", commands)
    row("down", stops)
    print(f"{'resident memory of the emulator':34} {max(memory) >> 20:7d} MiB")
    stored = sum(path.stat().st_blocks * 512 for path in image_files())
    print(f"{'image on the host disk':34} {stored >> 20:7d} MiB")


def image_files() -> list[Path]:
    return [path for path in ensure_image(default_recipe()).folder.iterdir() if path.is_file()]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--board", default="rpi4")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    print(f"board {arguments.board}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="edgekit-bench-") as cache:
        os.environ["EDGEKIT_CACHE_DIR"] = cache
        try:
            measure(load_board(arguments.board), arguments.runs)
        finally:
            if Path(cache, "twins", "machines", "bench").is_dir():
                down("bench", delete=True)
    print(f"load average at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
