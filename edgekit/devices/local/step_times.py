"""The times of a model's steps, in the form that the agent on a board sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.base.arrays import Array


@dataclass(frozen=True)
class StepTimes:
    """Nanoseconds of some inferences, a row for each."""

    names: Sequence[str]
    started: Array
    """The start of each step since its inference began."""
    taken: Array
    whole: Array
    """The duration of each inference."""
    on_device: Array | None = None
    """What the kernels of each step took by a GPU's own clock; None without a GPU."""

    @classmethod
    def end_to_end(cls, names: Sequence[str], taken: Array) -> StepTimes:
        """Lay steps of which only durations are known end to end."""
        ends = np.cumsum(taken, axis=1)
        return cls(names, ends - taken, taken, taken.sum(axis=1))

    def answer(self, traced: int) -> dict[str, object]:
        """Return the medians, and a timeline of the first `traced` inferences."""
        medians = np.median(self.taken, axis=0)
        kernels: list[dict[str, object]] = [
            {"name": name, "calls": len(self.taken), "nanoseconds": int(nanoseconds)}
            for name, nanoseconds in zip(self.names, medians, strict=True)
        ]
        if self.on_device is not None:
            for kernel, nanoseconds in zip(kernels, np.median(self.on_device, axis=0), strict=True):
                if nanoseconds > 0:
                    kernel["device_nanoseconds"] = int(nanoseconds)
        return {
            "kernels": kernels,
            "timeline": [
                {
                    "nanoseconds": int(self.whole[k]),
                    "kernels": list(range(len(self.names))),
                    "starts": self.started[k].tolist(),
                    "durations": self.taken[k].tolist(),
                }
                for k in range(min(traced, len(self.taken)))
            ],
        }
