"""Compiled models, run as a deployment runs them: linked into a library, and loaded by the process
of a local device, which has TVM's small runtime and no compiler.

Whatever tests compare with an oracle runs here. A function that only the compiler's own process
registers (a sort, say) would else count as right, and be missing on a device.
"""

from __future__ import annotations

import atexit
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.base import Backend, Options, Region
from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT
from edgekit.building.expectation import Expectation
from edgekit.building.product import Making
from edgekit.building.products import product_of
from edgekit.building.products.library import write_objects
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import LIBRARY_NAME
from edgekit.cross.toolchain import find_compiler
from edgekit.devices.local.device import worker_arguments
from edgekit.devices.local.worker_process import WorkerProcess, started_worker
from edgekit.models.model import ModelSource
from edgekit.profiles.board import load_board
from edgekit.profiles.cpu import Target
from edgekit.profiles.toolchain import load_toolchain

if TYPE_CHECKING:
    from edgekit.backends.offloading import OffloadedModel

SECONDS_A_MODEL = 120.0
_MODELS_A_WORKER = 200
"""A worker keeps every library that it loaded."""
_NO_SOURCE = ModelSource(Path("model.onnx"), "onnx", "0" * 64)


@dataclass(frozen=True)
class RegionInLab:
    """A region that is computed by `make`'s object, whose class `support.region_worker` imports."""

    make: Callable[[Region, Options], Callable[..., Sequence[np.ndarray]]]
    region: Region
    options: Options


def run_deployed(
    compiled: OffloadedModel,
    arguments: Sequence[np.ndarray],
    *,
    target: Target | None = None,
    backends: Sequence[tuple[Backend, Options]] = (),
    labs: Sequence[RegionInLab] = (),
) -> list[np.ndarray]:
    """Return the outputs of one call. `backends` generate the C++ of the regions; those that
    `labs` compute have none."""
    with tempfile.TemporaryDirectory(prefix="deployed-") as place:
        folder = Path(place)
        if labs:
            compiled = replace(compiled, regions=())
        symbols = [lab.region.symbol for lab in labs]
        library = linked(compiled, folder, target or load_board("local").target, backends, symbols)
        given = [np.require(value, requirements="C") for value in arguments]
        if not labs:
            return _WORKERS.plain.run({"library": str(library)}, given)
        regions = folder / "regions.pickle"
        regions.write_bytes(pickle.dumps([(lab.make, lab.region, lab.options) for lab in labs]))
        return _WORKERS.with_labs.run({"library": str(library), "regions": str(regions)}, given)


def linked(
    compiled: OffloadedModel,
    folder: Path,
    target: Target,
    backends: Sequence[tuple[Backend, Options]] = (),
    in_labs: Sequence[str] = (),
) -> Path:
    """Return the library that a bundle would hold. Labs compute the regions `in_labs`."""
    board = replace(load_board("local"), target=target)
    toolchain = load_toolchain(board.toolchain)
    objects = write_objects(compiled, target, backends, folder)
    if in_labs and not objects.needs_runtime:
        (folder / _CALLS).write_text("\n".join([_TO_LAB, *map(_call_of, in_labs)]) + "\n")
        names = (*objects.objects.names, _CALLS)
        objects = replace(objects, objects=replace(objects.objects, names=names))
    place = folder / "library"
    place.mkdir()
    request = BuildRequest(_NO_SOURCE, board, toolchain)
    compiler = find_compiler(toolchain)
    making = Making(product_of(board), request, compiler, place, folder, SILENT)
    objects.finish(making, Expectation(None, ()))
    return place / LIBRARY_NAME


_CALLS = "calls.c"
_TO_LAB = """
#include <stddef.h>
#include <stdlib.h>
typedef int region(const void *const *, void *const *, char *, size_t);
"""


def _call_of(symbol: str) -> str:
    """Return a region that calls what `support.region_worker` names in the environment."""
    return (
        f"int edgekit_region_{symbol}(const void *const *in, void *const *out, int threads,"
        f" char *why, size_t n) {{ (void)threads;"
        f' return ((region *)strtoull(getenv("{symbol}"), 0, 10))(in, out, why, n); }}'
    )


class _Worker:
    """One process for many models; a new one after a crash."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._life = ExitStack()
        self._process: WorkerProcess | None = None
        self._models = 0

    def run(self, load: dict[str, str], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._models += 1
        if self._models > _MODELS_A_WORKER:
            self.close()
        try:
            process = self._started()
            list(process.ask("loading", {"do": "load", **load}))
            *_, answer = process.ask("running", {"do": "run"}, arguments)
        except DeviceError:
            self.close()
            raise
        return list(answer.arrays)

    def close(self) -> None:
        self._life.close()
        self._process, self._models = None, 0

    def _started(self) -> WorkerProcess:
        if self._process is None:
            self._process = self._life.enter_context(
                started_worker(self._arguments, {}, "local", SECONDS_A_MODEL)
            )
        return self._process


class _Workers(threading.local):
    """The workers of this thread of this process: a worker ends with the thread that started it,
    and a fork must not speak with its parent's."""

    def __init__(self) -> None:
        self._owner = 0

    @property
    def plain(self) -> _Worker:
        self._begin()
        return self._plain

    @property
    def with_labs(self) -> _Worker:
        self._begin()
        return self._with_labs

    def _begin(self) -> None:
        if self._owner == os.getpid():
            return
        _, *rest = worker_arguments()
        self._owner = os.getpid()
        self._plain = _Worker(worker_arguments())
        self._with_labs = _Worker(["support.region_worker", *rest])
        atexit.register(self._plain.close)
        atexit.register(self._with_labs.close)


_WORKERS = _Workers()
