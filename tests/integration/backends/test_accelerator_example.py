"""examples/accelerator: an NPU in a package of its own, from the partition to right numbers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import CHECKOUT, Ran, environment, run_edgekit
from support.offloading import EXAMPLES, install_example_backend
from support.onnx_models import onnx_model

from edgekit.base.wording import microseconds

SUITE = EXAMPLES / "accelerator" / "test_tern.py"
STEM, BLOCK = ["nn.conv2d", "add", "nn.relu"], ["nn.conv2d", "nn.conv2d", "add", "nn.relu", "add"]
HEAD = ["reshape", "matmul", "add"]

pytestmark = pytest.mark.slow

Tool = Callable[..., Ran]


def residual_network(path: Path) -> Path:
    """Three convolutions, past which two results are carried, a dense layer and a softmax."""
    random = np.random.default_rng(0)
    weights = {
        "first": random.standard_normal((8, 3, 3, 3)),
        "bias": random.standard_normal(8),
        "second": random.standard_normal((8, 8, 3, 3)),
        "third": random.standard_normal((8, 8, 3, 3)),
        "dense": random.standard_normal((8 * 12 * 12, 10)),
        "shift": random.standard_normal(10),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first", "bias"], ["a"], name="/stem", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], name="/block", pads=[1] * 4),
        helper.make_node("Conv", ["c", "third"], ["d"], pads=[1] * 4),
        helper.make_node("Add", ["d", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["e"]),
        helper.make_node("Add", ["e", "c"], ["both"]),
        helper.make_node("Flatten", ["both"], ["f"]),
        helper.make_node("Gemm", ["f", "dense", "shift"], ["g"], name="/head"),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    floats = {name: value.astype("float32") / 8 for name, value in weights.items()}
    onnx.save(onnx_model(nodes, {"x": [1, 3, 12, 12]}, ["y"], floats), path)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example_backend(tmp_path_factory.mktemp("package"), "accelerator")


@pytest.fixture
def tool(tmp_path: Path, site: Path) -> Tool:
    residual_network(tmp_path / "net.onnx")
    path = os.pathsep.join((str(site), str(CHECKOUT)))

    def run(*words: str, code: int = 0, project: str = "", **extra: str) -> Ran:
        text = f'schema = 1\nmodel = "net.onnx"\n{project}'
        (tmp_path / "edgekit.toml").write_text(text, encoding="utf-8")
        ran = run_edgekit(*words, folder=tmp_path, extra={"PYTHONPATH": path, **extra})
        assert ran.code == code, ran.err
        return ran

    return run


def partitioned(tool: Tool, project: str = "") -> Any:
    words = ("partition", "net.onnx", "--board", "local", "--offload", "tern", "--json")
    return json.loads(tool(*words, project=project).out)


def traced(tool: Tool, folder: Path, project: str = "") -> tuple[int, int]:
    """Build and verify, and return the cycles of a call and its bytes of scratch memory."""
    words = (
        "build",
        "net.onnx",
        "--board",
        "local",
        "--offload",
        "tern",
        "-o",
        "out",
        "--no-cache",
    )
    assert "tern" in tool(*words, project=project).out
    assert (
        json.loads(tool("verify", "out", "--json", TERN_TRACE=str(folder / "trace")).out)["passed"]
        is True
    )
    (line,) = set((folder / "trace").read_text(encoding="ascii").splitlines())
    cycles, scratch = line.split()
    return int(cycles), int(scratch)


def test_one_region_runs_on_the_simulator_and_its_cycles_are_those_of_the_estimate(
    tool: Tool, tmp_path: Path
) -> None:
    report = partitioned(tool)
    cycles, scratch = traced(tool, tmp_path)

    taken = [d for d in report["decisions"] if d["backend"] == "tern"]
    assert [d["operator"] for d in taken] == [*STEM, *BLOCK, *HEAD]
    (reason,) = {d["reason"] for d in taken}
    assert f"tern estimates {microseconds(cycles / 500)}," in reason
    assert scratch == 0


def test_a_tensor_that_finds_no_gap_waits_outside(tool: Tool, tmp_path: Path) -> None:
    _, scratch = traced(tool, tmp_path, "[offload.tern]\nsram_kib = 28")

    assert scratch == 8 * 12 * 12 * 4


def test_what_does_not_fit_or_does_not_pay_stays_with_the_reason(tool: Tool) -> None:
    small = partitioned(tool, "[offload.tern]\nsram_kib = 64")
    slow = partitioned(tool, "[offload.tern]\nmhz = 1")

    head = next(d for d in small["decisions"] if d["operator"] == "matmul")
    assert head["backend"] is None
    assert "KiB at once, and half the SRAM has 32" in head["reason"]
    assert {d["backend"] for d in slow["decisions"]} == {None}
    assert any("not worth its boundary" in d["reason"] for d in slow["decisions"])


def test_an_estimate_that_fails_names_the_backend(tool: Tool) -> None:
    words = ("partition", "net.onnx", "--board", "local", "--offload", "tern")
    ran = tool(*words, project="[offload.tern]\nmhz = 0", code=6)

    assert "the backend tern could not estimate the time of the region" in ran.err
    assert "Traceback" not in ran.err


def test_it_keeps_the_contract(site: Path, tmp_path: Path) -> None:
    shutil.copy(SUITE, tmp_path)
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE.name),
        cwd=tmp_path,
        env=environment({"PYTHONPATH": os.pathsep.join((str(site), str(CHECKOUT)))}),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-3000:]
    assert "13 passed" in done.stdout


JOB = """
#include <stdio.h>
#include "tern.h"
int main(void) {
  static const uint32_t stream[] = {%s};
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  const tern_input given[] = {{x, sizeof x}};
  const tern_output made[] = {{y, sizeof y}};
  const tern_job job = {stream, sizeof stream, "", 0, given, 1, made, 1};
  const char* wrong = tern_run(&job);
  printf("%%s %%g", wrong ? wrong : "right", y[3]);
  return 0;
}
"""
TERN = 0x4E524554
CONVOLVED = (0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 2)
STREAMS = {
    "right 4": (TERN, 64, 0, 1, 0, 0, 0, 16, 16, 2, 3, 0, 0, 16, 16),
    "these are no commands of a Tern 0": (1, 64, 0),
    "a command is unknown or cut off 0": (TERN, 64, 0, 9),
    "a transfer leaves the memory outside 0": (TERN, 64, 0, 1, 0, 0, 0, 0, 17),
    "a transfer leaves the SRAM 0": (TERN, 8, 0, 1, 0, 0, 0, 0, 16),
    "an addition leaves the SRAM 0": (TERN, 64, 0, 5, 0, 0xFFFFFFFC, 4, 0),
    "a convolution leaves the SRAM 0": (TERN, 64, 0, 3, *CONVOLVED),
    "a convolution has odd groups 0": (TERN, 64, 0, 3, *CONVOLVED[:-1], 0),
}


@pytest.mark.parametrize("answer", STREAMS)
def test_the_simulator_checks_every_command(answer: str, tmp_path: Path) -> None:
    text = ", ".join(f"{word}u" for word in STREAMS[answer])
    (tmp_path / "job.c").write_text(JOB % text, encoding="utf-8")
    driver = EXAMPLES / "accelerator" / "edgekit_tern" / "driver"
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover")
    command = ("gcc", "-std=c11", *checks, "-I", str(driver), "job.c", str(driver / "tern.c"))
    subprocess.run((*command, "-o", "job"), cwd=tmp_path, check=True)

    done = subprocess.run(("./job",), cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == answer
