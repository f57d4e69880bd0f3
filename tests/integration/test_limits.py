"""Commands where a process may open few files or use little memory: the limit is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.building import write_model

LIMIT = 13


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "command", "raise_it"),
    [
        ("-n 8", "build model.onnx --board local -o out", "ulimit -n"),
        ("-n 8", "deploy model.onnx --board local", "ulimit -n"),
        ("-n 8", "doctor", "ulimit -n"),
        ("-v 300000", "inspect model.onnx", "ulimit -v"),
        ("-v 300000", "build model.onnx --board local -o out", "ulimit -v"),
        ("-v 180000", "inspect model.onnx", "ulimit -v"),
        ("-v 100000", "boards", "ulimit -v"),
    ],
)
def test_a_limit_that_is_too_small_is_named_with_the_command_that_raises_it(
    limit: str, command: str, raise_it: str, work: Path
) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"ulimit {limit} && exec {sys.executable} -m edgekit {command} --json"],
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "EDGEKIT_CACHE_DIR": str(work / "c"), "EDGEKIT_STORE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == LIMIT, ran.stderr
    assert "Traceback" not in ran.stderr
    error = json.loads(ran.stdout)["error"]
    assert error["type"] == "ResourceError"
    assert raise_it in error["hint"]
    assert not (work / "out").exists()


@pytest.mark.parametrize(
    ("limit", "command"), [("-n 8", "boards"), ("-n 8", "--version"), ("-v 300000", "boards")]
)
def test_what_needs_little_works_under_the_same_limits(limit: str, command: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"ulimit {limit} && exec {sys.executable} -m edgekit {command}"],
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 0
