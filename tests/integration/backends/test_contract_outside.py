"""The contract of backends, run by a package outside: its page's own test, on the example and on
broken copies of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.building import CHECKOUT, environment
from support.offloading import install_example_backend
from support.pages import put_files

RIGHT = "test_operators_compute"
BROKEN = {
    "wrong numbers": (RIGHT, "sum * scale[o] + shift[o]", "sum * scale[o]"),
    "a name as C++": (
        "test_hostile_names",
        'lines.append(f"conv(',
        'lines.append(f"// {step.nodes}\\n{step.nodes[0]};")\n            lines.append(f"conv(',
    ),
    "other C++ every time": (
        "test_one_model_always",
        "code = LOOPS.replace(",
        "import os\n        code = os.urandom(4).hex().join(('//', LOOPS)).replace(",
    ),
    "a silent refusal": (
        "test_a_refusal",
        "    if int(norm.axis) != 1:",
        '    raise Refused("")\n    if 1:',
    ),
}

QUICK = "a silent refusal"
"""The one that builds nothing."""


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    site = install_example_backend(tmp_path / "package")
    put_files("backend.md", tmp_path)

    def run(*options: str, old: str = "", new: str = "") -> subprocess.CompletedProcess[str]:
        module = site / "edgekit_loops.py"
        text = module.read_text(encoding="utf-8")
        assert old in text
        module.write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
        path = os.pathsep.join((str(site), str(CHECKOUT)))
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_loops.py")
        return subprocess.run(
            (*command, *options),
            cwd=tmp_path,
            env=environment({"PYTHONPATH": path}),
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.slow
def test_the_example_keeps_the_contract(
    suite: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = suite()

    assert done.returncode == 0, done.stdout[-3000:]
    assert "8 passed, 1 skipped" in done.stdout  # it has no option


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=() if w == QUICK else pytest.mark.slow) for w in BROKEN]
)
def test_a_broken_backend_does_not(
    what: str, suite: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    test, old, new = BROKEN[what]

    done = suite("-k", test, old=old, new=new)

    assert done.returncode == 1, done.stdout[-3000:]
    assert "1 failed" in done.stdout
