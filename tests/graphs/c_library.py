"""A tree of C as a shared library that this process calls."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgekit.aot.tree import TreePlan, ports
from edgekit.base.arrays import numpy_dtype
from edgekit.cross.tools import run_tool

FLAGS = (
    *("-std=gnu99", "-O1", "-fPIC", "-shared"),
    *("-fsanitize=undefined", "-fno-sanitize-recover=all"),
    *("-Wall", "-Wextra", "-Wconversion", "-Werror"),
)


def run_tree(
    plan: TreePlan, folder: Path, inputs: Mapping[str, np.ndarray], *flags: str
) -> dict[str, np.ndarray]:
    """Compile the tree in `folder` and run it once, in an arena full of a pattern."""
    library = folder / "model.so"
    command = ["gcc", *FLAGS, *flags, "-o", str(library), f"{plan.name}.c", "-lm"]
    run_tool(command, folder=folder, doing="compile the C")
    loaded = ctypes.CDLL(str(library))
    given, made = ports(plan)
    # An empty array has no address of its own; C is given one all the same.
    sources = [
        np.append(inputs[port.spec.name].reshape(-1), np.zeros(1, port.spec.dtype))
        for port in given
    ]
    results = [np.full(port.spec.elements + 1, 7, numpy_dtype(port.spec.dtype)) for port in made]
    room = np.full(plan.arena.bytes + 256, 0xA5, np.uint8)
    start = room.ctypes.data + -room.ctypes.data % 128
    status = getattr(loaded, f"{plan.name}_check")()
    if status:
        raise AssertionError(f"check {status} failed")
    run = getattr(loaded, f"{plan.name}_run")
    status = run(_pointers(sources), _pointers(results), ctypes.c_void_p(start))
    if status:
        raise AssertionError(f"the run gives {status}")
    return {
        port.spec.name: array[:-1].reshape(port.spec.shape)
        for port, array in zip(made, results, strict=True)
    }


def _pointers(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    return (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
