"""Ctrl-C, kill -9 and a second build at the same moment leave no mess and no wrong bundle."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import command_line, environment, names_in, processes_with, run_edgekit
from support.examples import first_of
from support.onnx_models import onnx_model

from edgekit.base.cache import BuildCache
from edgekit.bundle.folder import open_bundle

PATIENCE = 600.0
"""Seconds until a test gives up; none of them measures time."""


class Building:
    """An edgekit process that builds, and everything it started."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = f"EDGEKIT_TEST_MARK={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            command_line("build", *arguments),
            cwd=folder,
            env=environment({name: value}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(slow_to_compile(), tmp_path / "deep.onnx")
    return tmp_path


def slow_to_compile() -> onnx.ModelProto:
    """Many convolutions, no two alike: the compiler is at work for long enough to be met at it."""
    nodes, weights, channels = [], {}, 3
    for layer in range(12):
        weights[f"w{layer}"] = np.full((channels + 3, channels, 3, 3), 0.01, np.float32)
        nodes += [
            helper.make_node("Conv", [f"x{layer}", f"w{layer}"], [f"c{layer}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{layer}"], [f"x{layer + 1}"]),
        ]
        channels += 3
    return onnx_model(nodes, {"x0": [1, 3, 8, 8]}, ["x12"], weights)


@contextmanager
def building(folder: Path, *arguments: str) -> Iterator[Building]:
    started = Building(folder, *arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for never came"
        time.sleep(0.005)


def scratch_exists() -> bool:
    return bool(names_in(BuildCache().root / "work"))


def compiler_runs(folder: Path) -> Callable[[], bool]:
    return lambda: bool(names_in(folder / "ir"))


@pytest.mark.parametrize("moment", ["starting", "compiling"])
@pytest.mark.parametrize("number", first_of(signal.SIGINT, signal.SIGTERM))
def test_an_interrupted_build_leaves_nothing(
    folder: Path, moment: str, number: signal.Signals
) -> None:
    arguments = ["deep.onnx", "--board", "local", "-o", "out/b", "--dump-ir", "ir"]
    with building(folder, *arguments) as started:
        wait_until(scratch_exists if moment == "starting" else compiler_runs(folder))
        os.kill(started.process.pid, number)
        code, out, err = started.wait()
    assert code == 128 + number, err
    assert out == ""
    assert "Traceback" not in err
    assert names_in(folder) <= {"deep.onnx", "cache", "ir"}
    cache = BuildCache()
    assert cache.entries() == ()
    assert names_in(cache.root / "work") == names_in(cache.root / "entries") == set()
    assert processes_with(started.mark) == []


def test_an_interrupted_build_keeps_the_bundle_it_was_to_replace(folder: Path) -> None:
    arguments = ["deep.onnx", "--board", "local", "-o", "b"]
    assert run_edgekit("build", *arguments, folder=folder).code == 0
    before = open_bundle(folder / "b").digest
    with building(folder, *arguments, "--seed", "1", "--dump-ir", "ir") as started:
        wait_until(compiler_runs(folder))
        os.kill(started.process.pid, signal.SIGINT)
        assert started.wait()[0] == 130
    assert open_bundle(folder / "b").digest == before
    assert names_in(folder) == {"deep.onnx", "cache", "ir", "b"}


def test_what_a_killed_build_leaves_is_cleaned_by_the_next(folder: Path) -> None:
    arguments = ["deep.onnx", "--board", "local", "-o", "b"]
    with building(folder, *arguments, "--dump-ir", "ir") as started:
        wait_until(compiler_runs(folder))
        os.kill(started.process.pid, signal.SIGKILL)
        started.wait()
    wait_until(lambda: processes_with(started.mark) == [])
    assert not (folder / "b").exists()
    assert scratch_exists()

    ran = run_edgekit("build", *arguments, folder=folder)
    assert ran.code == 0, ran.err
    assert open_bundle(folder / "b")
    assert names_in(folder) == {"deep.onnx", "cache", "ir", "b"}
    assert not scratch_exists()
    assert len(names_in(BuildCache().root / "entries")) == 1


def test_of_two_builds_at_once_one_compiles_and_the_other_takes_its_result(
    folder: Path,
) -> None:
    common = ["deep.onnx", "--board", "local", "-v", "-o"]
    with (
        building(folder, *common, "one") as first,
        building(folder, *common, "two") as second,
    ):
        results = [first.wait(), second.wait()]
    assert [code for code, _, _ in results] == [0, 0], results
    assert open_bundle(folder / "one").digest == open_bundle(folder / "two").digest
    assert sorted("from the cache" in out for _, out, _ in results) == [False, True]
    compiled = [err for _, out, err in results if "from the cache" not in out]
    taken = [err for _, out, err in results if "from the cache" in out]
    assert "link the library" in compiled[0]
    assert "link the library" not in taken[0]
    assert len(BuildCache().entries()) == 1


def test_a_build_that_waits_for_another_says_so_and_goes_on_when_that_one_dies(
    folder: Path,
) -> None:
    common = ["deep.onnx", "--board", "local", "-v"]
    with building(folder, *common, "-o", "one", "--dump-ir", "ir") as first:
        wait_until(compiler_runs(folder))
        os.kill(first.process.pid, signal.SIGSTOP)  # holds the lock as long as we like
        with building(folder, *common, "-o", "two") as second:
            assert second.process.stderr is not None
            wait_until(lambda: _waits_for_lock(second.process.pid))
            os.kill(first.process.pid, signal.SIGKILL)
            code, _, err = second.wait()
    assert code == 0, err
    assert "wait for another build of the same model" in err
    assert open_bundle(folder / "two")
    assert not (folder / "one").exists()


def _waits_for_lock(pid: int) -> bool:
    """/proc/locks lists who is blocked with an arrow before the entry."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and line.split()[5] == str(pid) for line in lines)


def test_two_builds_into_one_folder_leave_one_whole_bundle(folder: Path) -> None:
    common = ["deep.onnx", "--board", "local", "-o", "b", "--no-cache", "--seed"]
    with building(folder, *common, "1") as first, building(folder, *common, "2") as second:
        assert first.wait()[0] == 0
        assert second.wait()[0] == 0
    assert open_bundle(folder / "b").manifest.seed in (1, 2)
    assert names_in(folder) - {"cache"} == {"deep.onnx", "b"}
