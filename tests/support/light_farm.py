"""A keeper in this process whose workers are stand-ins: they say that their devices are there."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgekit.base.events import SILENT
from edgekit.devices.keeper_client import farm_folder
from edgekit.farm import keeper
from edgekit.farm.control import down
from edgekit.farm.health import Limits
from edgekit.farm.keeper import Keeper
from edgekit.farm.plan import FarmPlan, Member
from edgekit.rpc.protocol import TrackerAddress

_WORKER = """\
import json, os, sys, threading
print(json.dumps({"state": "up"}), flush=True)
while os.read(0, 4096):
    pass
"""


class LightFarm:
    """A keeper that can be ended and started again."""

    def __init__(self, plan: FarmPlan) -> None:
        self.plan = plan
        self.start()

    def start(self) -> None:
        self._keeper = Keeper(self.plan, TrackerAddress("127.0.0.1", 1), SILENT)
        self._thread = threading.Thread(target=self._keeper.run)
        self._thread.start()

    def kill(self) -> None:
        """End as a killed process does, which leaves its socket behind."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keeper, "socket_path", lambda: farm_folder() / "none")
            self.end()

    def end(self) -> None:
        down()
        self._thread.join()
        self._keeper.close()


@contextmanager
def light_farm(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *members: Member, longest: float = 7200.0
) -> Iterator[LightFarm]:
    """Up until the block ends; its folders are this test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    farm_folder().mkdir(parents=True)
    # They say nothing more, however long a test takes.
    limits = Limits(silence=math.inf)
    worker = (sys.executable, "-c", _WORKER)
    farm = LightFarm(FarmPlan(members, worker=worker, limits=limits, longest_reservation=longest))
    try:
        yield farm
    finally:
        farm.end()
