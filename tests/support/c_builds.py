"""Models to C trees in this process, compiled and run on this machine or looked at with nm."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from edgekit.aot.compile import Compiled, compile_tree
from edgekit.aot.generators import portable_generators
from edgekit.aot.job import TreeJob
from edgekit.aot.kernel import Generator
from edgekit.aot.tree import Origin
from edgekit.aot.write import write_tree, write_vectors
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.profiles.cpu import Cpu

CORTEX_M4 = Cpu("Cortex-M4", "cortex-m", ("dsp", "fpu-single"), 1)
CORTEX_M55 = Cpu(
    "Cortex-M55", "cortex-m", ("dsp", "fpu-single", "fpu-double", "mve-integer", "mve-float"), 1
)
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZED = (
    *("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *STRICT,
)
SECONDS = 600


@dataclass(frozen=True)
class Built:
    folder: Path
    name: str
    compiled: Compiled
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]


def built_tree(
    model: onnx.ModelProto | Path,
    folder: Path,
    name: str = "net",
    *,
    cpu: Cpu = CORTEX_M4,
    offers: Sequence[Generator] | None = None,
) -> Built:
    """The model as a complete C tree in `folder`, vectors by onnxruntime or LiteRT."""
    if isinstance(model, Path):
        file = model
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.with_suffix(".onnx")
        onnx.save(model, file)
    source = open_model(file)
    imported = import_model(source)
    origin = Origin(file.stem, file.name, "0", "here", cpu.name)
    chosen = portable_generators() if offers is None else offers
    compiled = compile_tree(imported, TreeJob(name, origin, cpu), chosen)
    write_tree(compiled.plan, folder)
    inputs = reference_inputs(imported.inputs, 0)
    expected = oracle_for(source).run(inputs)
    write_vectors(folder, origin, (imported.inputs, imported.outputs), inputs, expected)
    return Built(folder, name, compiled, inputs, expected)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(["make", *arguments], folder)


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(command),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
