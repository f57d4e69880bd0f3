"""ACL regions on an emulated ARM CPU: the board's own library, under QEMU, a region at a time.

ACL has no code for this machine's CPU. So its regions run under emulation, in a program compiled
once, and the rest of a model in the worker of a deployment on this machine. Whole models on an
emulated board are what the tests with a twin run.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.base import Options, Region
from edgekit.backends.plain.program import program_of
from support.arm_machine import ArmMachine, start_machine

if TYPE_CHECKING:
    from edgekit.models.model import Model
    from support.offloaded import Offloaded


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
    """Run the model with everything in ACL that ACL takes, and TVM's kernels, on this machine, for
    the rest."""
    from support.offloaded import run_offloaded, selection_for

    return run_offloaded(model, inputs, selection_for("acl", **options), AclRegion)
