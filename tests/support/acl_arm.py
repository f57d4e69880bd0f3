"""ACL regions on an emulated ARM CPU: the board's own library, under QEMU, a region at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from edgekit.backends.base import Options, Region
from edgekit.backends.plain.program import program_of
from edgekit.model import Model
from support.arm_machine import ArmMachine, start_machine
from support.region_lab import Offloaded, run_offloaded, selection_for


def arm_machine() -> ArmMachine:
    return start_machine("acl")


class AclRegion:
    """A region that runs there: made, run twice and given up for each call."""

    def __init__(self, region: Region, options: Options, weights: bytes | None = None) -> None:
        self.region = region
        program = program_of(region)
        text = "".join(f"{line}\0" for line in program.lines).encode("ascii", "replace")
        blob = program.weights if weights is None else weights
        self._head = b"".join(struct.pack("<i", len(part)) + part for part in (text, blob))

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        given = b"".join(np.ascontiguousarray(value).tobytes() for value in inputs)
        question = self._head + struct.pack("<i", len(given)) + given
        return arm_machine().ask(question, self.region.outputs)


def offloaded(model: Model, inputs: Sequence[np.ndarray], **options: object) -> Offloaded:
    """The model with everything in ACL that ACL takes, and TVM, on this machine, for the rest."""
    return run_offloaded(model, inputs, selection_for("acl", **options), AclRegion)
