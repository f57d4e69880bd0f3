"""What several reference vectors cost: the oracle's seconds, and those of a verification with one
vector and with all of them, on this machine.

    python -m benchmarks.reference_vectors MODEL [NAME=1,3,224,224]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import Bundle, Vector
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import open_model
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_types import Oracle
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.verify import raise_if_failed, verify

_TIMES = 5


def main(model: str, *shapes: str) -> None:
    board = load_board("local")
    pairs = (text.partition("=") for text in shapes)
    closed = {name: tuple(map(int, shape.split(","))) for name, _, shape in pairs}
    source = open_model(Path(model), closed)
    with tempfile.TemporaryDirectory() as folder:
        request = BuildRequest(source, board, load_toolchain(board.toolchain))
        bundle = build(request, Path(folder) / "bundle").bundle
        vectors = list(bundle.vectors())
        for left in bundle.manifest.left_out:
            print(f"no vector {left.name}: {left.reason}")
        one = replace(
            bundle, manifest=replace(bundle.manifest, vectors=bundle.manifest.vectors[:1])
        )
        oracle = oracle_for(source)
        for count, chosen in ((1, one), (len(vectors), bundle)):
            asked = _seconds(partial(_run_oracle, oracle, vectors[:count]))
            verified = _seconds(partial(_verify, chosen))
            print(f"{count} vectors: oracle {asked:.3f} s, verification {verified:.3f} s")


def _run_oracle(oracle: Oracle, vectors: Sequence[Vector]) -> None:
    for vector in vectors:
        oracle.run(vector.inputs)


def _verify(bundle: Bundle) -> None:
    raise_if_failed(verify(bundle, LocalDevice(600)))


def _seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times)


if __name__ == "__main__":
    main(*sys.argv[1:])
