"""A builder of candidates that pause in each run, as those of a slow device do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgekit.tuning.builder import Workbench, main
from edgekit.tuning.messages import OWN
from tests.support.faulty_builder import calling

PAUSE = "EDGEKIT_BENCHMARK_PAUSE"
"""The microseconds of each run's pause."""


class _SlowWorkbench(Workbench):
    def linked(self, functions: dict[str, Any], folder: Path) -> Path:
        pause = [("usleep", int(os.environ[PAUSE]))]
        slowed = {
            name: calling(function, pause) if name.startswith(OWN) else function
            for name, function in functions.items()
        }
        return super().linked(slowed, folder)


if __name__ == "__main__":
    main(_SlowWorkbench)
