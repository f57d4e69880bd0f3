"""oneDNN regions at once, without a C++ compiler for each: region_lab.py with oneDNN's header."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.base import Options, Region
from edgekit.backends.onednn import settings_of
from edgekit.backends.plain.program import program_of
from support.region_lab import LabRegion, compiled_lab

if TYPE_CHECKING:
    from edgekit.models.model import Model
    from support.offloaded import Offloaded


class OneDnnRegion(LabRegion):
    def __init__(
        self,
        region: Region,
        options: Options,
        weights: bytes | None = None,
        lab: ctypes.CDLL | None = None,
    ) -> None:
        super().__init__(region, lab or compiled_lab("onednn"))
        program = program_of(region)
        blob = program.weights if weights is None else weights
        room = np.zeros(len(blob) + 64, np.uint8)
        start = -room.ctypes.data % 64
        room[start : start + len(blob)] = np.frombuffer(blob, np.uint8)
        self._weights = room
        lines = [line.encode("ascii", "replace") for line in program.lines]
        self._lines = (ctypes.c_char_p * len(lines))(*lines)
        threads, *switches = settings_of(options)
        self.check(
            self.lab.lab_new(
                *(self._lines, ctypes.c_size_t(len(lines))),
                *(ctypes.c_void_p(room.ctypes.data + start), ctypes.c_size_t(len(blob))),
                *(int(threads), *(ctypes.c_bool(word == "true") for word in switches)),
                ctypes.byref(self.runner),
            )
        )


def offloaded(model: Model, inputs: Sequence[np.ndarray], **options: object) -> Offloaded:
    """Run the model with everything in oneDNN that oneDNN takes, and TVM's kernels for the rest."""
    from support.offloaded import run_offloaded, selection_for

    selection = selection_for("onednn", threads=1, **options)
    return run_offloaded(model, inputs, selection, OneDnnRegion)
