"""A model as a module of WebAssembly beside onnxruntime-web, in one process of Node.js, in turns.

    npm install --prefix /tmp/ort onnxruntime-web
    python -m benchmarks.wasm --onnxruntime /tmp/ort/node_modules/onnxruntime-web SqueezeNet

Each takes one thread and the same inputs, and copies inputs and outputs. A round's time is that of
its fastest run, which other programs disturb least. The table has the median of the rounds' ratios,
and the least and the largest one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

from benchmarks import networks
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.devices.engine import LOADER
from edgekit.models.model import open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

_SCRIPT = Path(__file__).with_suffix(".mjs")
_RUNTIME = "ort-wasm-simd-threaded.wasm"
_DEFAULT = ("SqueezeNet", "MobileNetV2")


def measure(name: str, folder: Path, onnxruntime: Path, rounds: int, runs: int) -> str:
    """Return a row of the table."""
    model = Path(name)
    if model.suffix != ".onnx":
        model = folder / f"{name}.onnx"
        onnx.save(networks.build(name), model)
    board = load_board("web")
    request = BuildRequest(open_model(model), board, load_toolchain(board.toolchain))
    module = build(request, folder / f"{model.stem}-web").bundle.library
    words = ["node", _SCRIPT, LOADER, module, model, onnxruntime, rounds, runs]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip()[-800:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = (statistics.median(pair[k] for pair in said["found"]) for k in (0, 1))
    ratios = sorted(own / other for own, other in said["found"])
    size = module.stat().st_size
    whole = (onnxruntime / "dist" / _RUNTIME).stat().st_size + model.stat().st_size
    return (
        f"| {model.stem} | {ours:.2f} | {theirs:.2f} | {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {size / 1e6:.2f} | {whole / 1e6:.2f} "
        f"| {said['error']:.0e} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", default=list(_DEFAULT), help="a network, or a file")
    parser.add_argument("--onnxruntime", type=Path, default=Path("node_modules/onnxruntime-web"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args(arguments)
    if not (given.onnxruntime / "dist" / _RUNTIME).is_file():
        print(f"onnxruntime-web is not in {given.onnxruntime}: npm install onnxruntime-web")
        return 1
    print("| model | edgekit, ms | onnxruntime-web, ms | ratio | module, MB | theirs, MB | error |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for name in given.models:
            where = given.onnxruntime.resolve()
            print(measure(name, Path(place), where, given.rounds, given.runs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
