"""The four tables of docs/tables.md: the networks as files, and what this machine measures.

    python -m benchmarks.tables --models FOLDER   # alexnet.onnx, mobilenet-v2.onnx, and so on
    python -m benchmarks.tables                   # minutes; --filter NAME
    python -m benchmarks.tables --docs            # writes the figures in docs/tables.md

Columns and runtimes take turns in `edgekit bench --beside`. RetinaFace is run from C++: the library
that edgekit exports, behind its header; a few lines around onnxruntime's library; and MNN, whose
package has no headers, from Python. A thousand runs each, in ten alternating rounds, on one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from benchmarks.doc_table import write_table
from benchmarks.models import machine
from benchmarks.networks import NETWORKS
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.beside.contender import started
from edgekit.verbs.beside.runtimes import Given

FILES = {
    "AlexNet": "alexnet.onnx",
    "MobileNetV2": "mobilenet-v2.onnx",
    "YOLOv8n": "yolov8n.onnx",
    "RetinaFace": "retinaface.onnx",
}
COLUMNS = "none,tuned,ncnn,int8"
BESIDE = "onnxruntime,mnn"
RUNS, ROUNDS = 1000, 10
PAGE = Path(__file__).resolve().parent.parent / "docs" / "tables.md"
MARK = "<!-- benchmarks.tables --docs -->\n"


@dataclass(frozen=True)
class Mean:
    """Means of the rounds, in milliseconds."""

    rounds: tuple[float, ...]

    @property
    def milliseconds(self) -> float:
        return statistics.fmean(self.rounds)

    def ratio(self, other: Mean) -> str:
        ratios = [mine / its for mine, its in zip(self.rounds, other.rounds, strict=True)]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def write_models(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name in names:
        written[name] = folder / FILES[name]
        onnx.save(NETWORKS[name](), written[name])
    return written


def edgekit(folder: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "edgekit", *words, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 10):  # 10: some cells failed, which the report says
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}")
    return json.loads(done.stdout)


def matrix_rows(name: str, model: Path, search: str) -> list[str]:
    words: tuple[str, ...] = (
        "bench",
        model.name,
        "--boards",
        "local",
        "--threads",
        "1",
        "--seconds",
        "3",
    )
    words = (*words, "--offload", COLUMNS, "--search", search, "--beside", BESIDE)
    found = edgekit(model.parent, *words)
    return [_row(name, cell) for cell in found["cells"]]


def _row(name: str, cell: Mapping[str, Any]) -> str:
    if cell["status"] != "done":
        return f"| {name} | {cell['offload']} | {cell['status']}: {cell['error']} | | | |"
    ratio = "" if cell["ratio"] is None else _spread(cell)
    memory = "" if cell["memory"] is None else f"{cell['memory'] / 2**20:.1f}"
    search = "" if cell["search_seconds"] is None else f"{cell['search_seconds']:.0f}"
    time = f"{1e3 * cell['median']:.3g}"
    return f"| {name} | {cell['offload']} | {time} | {ratio} | {memory} | {search} |"


def _spread(cell: Mapping[str, Any]) -> str:
    return f"{cell['ratio']:.2f} ({cell['ratio_low']:.2f} to {cell['ratio_high']:.2f})"


def from_cpp(model: Path) -> dict[str, Mean]:
    """Run RetinaFace a thousand times in each runtime, in turns on one thread."""
    folder = model.parent
    built = edgekit(folder, "build", model.name, "--board", "local", "--offload", "none")
    bundle = open_bundle(folder / built["bundle"]["path"])
    with ExitStack() as closing:
        turns: dict[str, Callable[[int], float]] = {
            "edgekit, the exported library and `edgekit.hpp`": _application(folder, bundle),
            "onnxruntime, its library": _onnxruntime(folder, bundle, model),
            "MNN, its package": _mnn(folder, bundle, model, closing),
        }
        taken: dict[str, list[float]] = {name: [] for name in turns}
        for number in range(ROUNDS):
            for name in list(turns)[:: -1 if number % 2 else 1]:
                taken[name].append(turns[name](RUNS // ROUNDS))
    return {name: Mean(tuple(rounds)) for name, rounds in taken.items()}


def _compiled(folder: Path, source: str, *options: str) -> Path:
    program = (folder / source).with_suffix("")
    compiler = find_cxx_compiler(load_toolchain(load_board("local").toolchain)).command
    words = ["-std=c++17", "-O2", *options, "-o", str(program)]
    words += [str(Path(__file__).with_name(source)), "-ldl"]
    subprocess.run([*compiler, *words], check=True)
    return program


def _application(folder: Path, bundle: Bundle) -> Callable[[int], float]:
    app = folder / "application"
    edgekit(folder, "export", str(bundle.path), "-o", str(app))
    program = _compiled(folder, "retinaface.cc", f"-I{app / 'src'}")
    given = folder / "pixels"
    given.write_bytes(next(iter(bundle.reference_inputs().values())).tobytes())

    def turn(runs: int) -> float:
        words = [str(program), str(app / "lib" / "model.so"), str(given), str(runs)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout)

    return turn


def _onnxruntime(folder: Path, bundle: Bundle, model: Path) -> Callable[[int], float]:
    import onnxruntime

    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    program = _compiled(folder, "onnxruntime_board.cc")
    (name, array), *_ = bundle.reference_inputs().items()
    given = folder / "input"
    given.write_bytes(array.tobytes())
    outputs = list(bundle.reference_outputs())
    shape = [str(array.ndim), *map(str, array.shape)]

    def turn(runs: int) -> float:
        words = [str(program), str(library), str(model), str(runs)]
        words += [str(len(outputs)), *outputs, name, "1", str(given), *shape]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return statistics.fmean(float(line) for line in done.stdout.split()) / 1e6

    return turn


def _mnn(folder: Path, bundle: Bundle, model: Path, closing: ExitStack) -> Callable[[int], float]:
    inputs, outputs = bundle.reference_inputs(), bundle.reference_outputs()
    given = Given(model.absolute(), inputs, outputs, 1, folder)
    contender = closing.enter_context(started("mnn", given))

    def turn(runs: int) -> float:
        taken: list[int] = []
        while len(taken) < runs:
            taken += contender.turn(0.5).nanoseconds
        return statistics.fmean(taken[:runs]) / 1e6

    return turn


def table_of(rows: Sequence[str], means: Mapping[str, Mean]) -> str:
    lines = [
        "| network | column | ms | ratio to `none` (rounds) | MB | search, s |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"On one thread of {machine()}, which other work kept busy: read the ratios. They are of "
        "times in the same round; below 1 is faster than `none`. MB is what the model added to "
        "the process. This machine has no sensor of power: watts and energy are left out.",
    ]
    if means:
        first, *_ = means.values()
        lines += ["", f"| RetinaFace from C++, mean of {RUNS:,} runs | ms | ratio (rounds) |"]
        lines.append("|---|---|---|")
        lines += [
            f"| {name} | {mean.milliseconds:.3g} | {mean.ratio(first)} |"
            for name, mean in means.items()
        ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="tables that others published")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="write the networks there")
    parser.add_argument("--filter", default="", help="only networks whose name contains this")
    parser.add_argument("--cpp", action="store_true", help="only RetinaFace from C++")
    parser.add_argument("--search", default="60s", help="how long each search takes")
    parser.add_argument("--docs", action="store_true", help="write docs/tables.md's figures")
    options = parser.parse_args()
    names = [name for name in FILES if options.filter.lower() in name.lower()]
    if options.models is not None:
        for path in write_models(options.models, names).values():
            print(path)
        return 0
    with tempfile.TemporaryDirectory() as name:
        models = write_models(Path(name), names)
        rows = []
        for network, path in models.items() if not options.cpp else ():
            rows += matrix_rows(network, path, options.search)
        means = from_cpp(models["RetinaFace"]) if "RetinaFace" in models else {}
    table = table_of(rows, means)
    print(table)
    if options.docs:
        write_table(PAGE, MARK, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
