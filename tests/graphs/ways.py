"""The ways of a random graph through edgekit: to this machine, to a library, to C."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.base.errors import BuildError, EdgekitError, UnsupportedModelError
from edgekit.base.tensors import TensorSpec
from edgekit.models.comparison import Leeway, compare, tolerance_for
from edgekit.models.model import Model, ModelSource
from edgekit.profiles.board import Memory

REFUSALS = (UnsupportedModelError,)
"""What edgekit says of a sound model that it can't compile. Any other error is a fault."""
ROOM = Memory(1 << 63, 16 << 20)
"""What a program in C may take: four times the flash of the largest board that edgekit knows."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Graph:
    """A random graph, inputs for it, and what onnxruntime computes from them."""

    source: ModelSource
    model: Model
    inputs: Arrays
    expected: Arrays
    leeways: Mapping[str, Leeway]


@dataclass(frozen=True)
class Outcome:
    word: str
    """right, refused, WRONG or FAILED."""
    reason: str = ""


Way = Callable[[Graph], Outcome]


def judged(graph: Graph, actual: Arrays) -> Outcome:
    """Hold what a way computed to what `edgekit verify` allows."""
    specs: list[TensorSpec] = []
    for spec in graph.model.outputs:
        if spec.name not in {known.name for known in specs}:
            specs.append(spec)
    tolerances = {
        spec.name: tolerance_for(spec, leeway=graph.leeways.get(spec.name)) for spec in specs
    }
    for found in compare(graph.expected, actual, specs, tolerances).tensors:
        if found.passed:
            continue
        worst = found.worst
        at = f" at {list(worst.index)}: {worst.actual} for {worst.expected}" if worst else ""
        count = f"{found.out_of_tolerance} of {found.elements} elements"
        return Outcome("WRONG", found.mismatch or f"{found.name} {found.dtype}: {count}{at}")
    return Outcome("right")


def local(graph: Graph) -> Outcome:
    """Compile for this machine, and run it in the process that a deployment runs it in."""
    from support.deployed import run_deployed

    from edgekit.backends.offloading import compile_model
    from edgekit.profiles.board import load_board

    compiled = compile_model(graph.model, load_board("local").target, linked=True)
    given = [graph.inputs[spec.name] for spec in graph.model.inputs]
    arrays = run_deployed(compiled, given)
    names = [spec.name for spec in graph.model.outputs]
    return judged(graph, dict(zip(names, arrays, strict=True)))


def offloaded(backend: str) -> Way:
    """All that a library takes goes to it, whether or not that pays."""

    def way(graph: Graph) -> Outcome:
        from support.ncnn_lab import RegionRunner
        from support.offloaded import run_offloaded, selection_for
        from support.onednn_lab import OneDnnRegion

        make = {"ncnn": RegionRunner, "onednn": OneDnnRegion}[backend]
        given = [graph.inputs[spec.name] for spec in graph.model.inputs]
        found = run_offloaded(graph.model, given, selection_for(backend, threads=1), make)
        if not found.regions:
            return Outcome("right", "no region")
        names = [spec.name for spec in graph.model.outputs]
        outcome = judged(graph, dict(zip(names, found.outputs, strict=True)))
        return outcome if outcome.word != "right" else replace(outcome, reason="with regions")

    return way


def in_c(graph: Graph) -> Outcome:
    """Portable C, compiled by this machine's compiler, with undefined behaviour caught."""
    from support.c_builds import CORTEX_M4

    from edgekit.aot.budget import check_budget
    from edgekit.aot.compile import compile_tree
    from edgekit.aot.generators import portable_generators
    from edgekit.aot.job import TreeJob
    from edgekit.aot.report import report_of
    from edgekit.aot.tree import Origin
    from edgekit.aot.write import write_tree
    from graphs.c_library import run_tree

    origin = Origin("net", "net.onnx", "0", "a microcontroller", CORTEX_M4.name)
    job = TreeJob("net", origin, CORTEX_M4, ROOM)
    compiled = compile_tree(graph.model, job, portable_generators())
    try:
        check_budget(report_of(compiled.plan, compiled.choices), job, is_float=True)
    except BuildError as error:
        return Outcome("refused", error.message)
    with tempfile.TemporaryDirectory(prefix="graphs-") as place:
        folder = Path(place)
        write_tree(compiled.plan, folder)
        outputs = run_tree(compiled.plan, folder, graph.inputs)
    return judged(graph, outputs)


WAYS: Mapping[str, Way] = {
    "local": local,
    "ncnn": offloaded("ncnn"),
    "onednn": offloaded("onednn"),
    "c": in_c,
}


def taken(way: Way, graph: Graph) -> Outcome:
    """Take one way; whatever goes wrong is an outcome."""
    try:
        return way(graph)
    except REFUSALS as error:
        return Outcome("refused", error.message)
    except BuildError as error:
        return Outcome("FAILED", " | ".join((error.message, *error.details[-2:])))
    except EdgekitError as error:
        return Outcome("FAILED", f"{type(error).__name__}: {error.message}")
    except subprocess.SubprocessError as error:
        return Outcome("FAILED", str(error))
    except Exception as error:  # noqa: BLE001 - any exception is the finding
        lines = str(error).strip().splitlines() or [""]
        return Outcome("FAILED", f"{type(error).__name__}: {lines[-1][:300]}")
