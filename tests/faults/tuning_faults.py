"""The same faults while `edgekit tune` searches on the farm's devices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.stores import postgres_in

from faults.world import Broken, World, eventually, world

_TRIALS = 24
_SECONDS = 240.0


class _Search:
    """`edgekit tune` on a network of two convolutions."""

    def __init__(self, lab: World) -> None:
        self._lab = lab
        model = lab.folder / "model.onnx"
        if not model.exists():
            _write_model(model)
        self._log = lab.folder / f"tune-{time.monotonic_ns()}.log"
        words = ["-m", "edgekit", "tune", str(model), "--board", "local", "--json"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*lab.inside, sys.executable, *words, "--trials", str(_TRIALS)],
                env=lab.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def has(self, count: int) -> set[int]:
        """The candidates that are safe, once there are so many."""
        found: set[int] = set()

        def look() -> bool:
            found.update(self._lab.kept())
            return len(found) >= count or self.process.poll() is not None

        eventually(f"{count} candidates are measured", look, _SECONDS)
        if len(found) < count:
            raise Broken(f"the search ended early: {self._said()}")
        return found

    def finishes(self, safe: set[int]) -> dict[str, object]:
        try:
            out, _ = self.process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Broken(f"the search does not end: {self._said()}") from error
        if self.process.returncode != 0:
            raise Broken(f"the search ended with {self.process.returncode}: {self._said()}")
        lost = safe - self._lab.kept()
        if lost:
            raise Broken(f"{len(lost)} of {len(safe)} candidates were lost")
        report = json.loads(out)
        if report["trials"] + report["known"] < _TRIALS:
            raise Broken(f"it measured {report['trials']} of {_TRIALS}, and knew {report['known']}")
        return dict(report)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _said(self) -> str:
        return self._log.read_text()[-400:]


def a_search_is_killed(folder: Path) -> None:
    """The same command goes on where it was."""
    with world(folder) as lab:
        search = _Search(lab)
        safe = search.has(4)
        search.kill()
        report = _Search(lab).finishes(safe)
        if not report["known"]:
            raise Broken("what was measured is measured again")
        lab.all_free()


def agents_are_killed_under_a_search(folder: Path) -> None:
    with world(folder) as lab:
        search = _Search(lab)
        safe = search.has(3)
        for agent in lab.agents()[:2]:
            os.kill(agent, signal.SIGKILL)
        search.finishes(safe)
        lab.all_free()


def the_tracker_is_killed_under_a_search(folder: Path) -> None:
    with world(folder) as lab:
        search = _Search(lab)
        safe = search.has(3)
        for tracker in lab.processes("tracker_worker"):
            os.kill(tracker, signal.SIGKILL)
        search.finishes(safe)
        lab.all_free()


def postgres_is_killed_under_a_search(folder: Path) -> None:
    with (
        postgres_in(folder / "postgres") as server,
        world(folder / "world", store=server.url) as lab,
    ):
        search = _Search(lab)
        safe = search.has(3)
        server.kill()
        time.sleep(2)
        server.start()
        search.finishes(safe)
        lab.all_free()


def _write_model(path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    chance = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(chance.standard_normal(shape).astype("float32"), name)
        for name, shape in (("w1", (16, 8, 3, 3)), ("w2", (32, 16, 1, 1)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 28, 28])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
