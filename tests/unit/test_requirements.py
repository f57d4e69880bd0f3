"""What tests need of the machine: one table, one mark, and an end that says what was not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.needs import CHECKOUT

SETUP = CHECKOUT / "scripts" / "setup"
TABLE = CHECKOUT / "scripts" / "requirements.tsv"
ESSENTIAL = ("bash", "cat", "cut", "dirname", "flock", "grep", "gcc", "g++", "sha256sum", "tr")
"""What setup itself runs, and a compiler."""
TESTS = """
import threading
import pytest
from support.needs import needs, require

@pytest.fixture
def headers():
    require("tensorrt-headers")
    raise AssertionError("no fixture is made for a test that waits")

@needs("tensorrt-headers")
def test_waits(headers):
    pass

@needs("tensorrt-headers", "no-tensorrt-at-all")
def test_is_never_collected():
    pass
"""
INSIDE = """
from support.needs import require

def test_uses_what_it_is_not_marked_with():
    def callback():
        require("gcc")
    try:
        callback()
    except RuntimeError:
        pass
"""


def pytest_on(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_inner.py").write_text(text)
    words = ("-p", "conftest", "-p", "no:cacheprovider", "-c", str(CHECKOUT / "pyproject.toml"))
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--rootdir", str(folder), "test_inner.py"],
        cwd=folder,
        env={
            **{key: value for key, value in os.environ.items() if key != "TENSORRT_INCLUDE"},
            "PYTHONPATH": str(CHECKOUT / "tests"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_waits_before_its_fixtures_are_made_and_the_end_says_so(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, TESTS.partition('@needs("tensorrt-headers", ')[0])

    assert "1 skipped" in done.stdout, done.stdout
    last = [line for line in done.stdout.splitlines() if "waits for" in line]
    assert len(last) == 1
    assert last[0].startswith("1 test waits for tensorrt-headers: NVIDIA's licence keeps it out")


def test_a_requirement_that_is_in_no_table_is_an_error(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, TESTS)

    assert done.returncode == 2
    assert "no-tensorrt-at-all is neither in requirements.tsv nor" in done.stdout


def test_what_a_test_uses_without_its_mark_fails_where_it_is_installed_too(tmp_path: Path) -> None:
    """So that no skip is raised within a callback, where TVM makes an error of it."""
    done = pytest_on(tmp_path, INSIDE)

    assert "1 failed" in done.stdout, done.stdout
    assert "this test has to be marked with needs('gcc',)" in done.stdout


def test_every_row_of_the_table_is_whole() -> None:
    rows = [
        [part for part in line.split("\t") if part]
        for line in TABLE.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]

    assert len(rows) > 25
    assert all(len(row) == 6 for row in rows)
    assert len({row[0] for row in rows}) == len(rows)
    assert {target for row in rows for target in row[1].split()} == {
        *("demo", "dev", "docs", "go", "gpu", "test", "tensorflow", "tensorrt"),
    }
    assert {row[2] for row in rows} == {"apt", "pip", "torch", "venv", "folder"}


def setup_without_root(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As on a machine with a compiler and little else, by a user who may not install."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ESSENTIAL:
        (programs / name).symlink_to(shutil.which(name) or name)
    (programs / "python3").symlink_to(sys.executable)
    (programs / "id").write_text("#!/bin/sh\necho 1000\n")
    (programs / "id").chmod(0o755)
    return subprocess.run(
        [str(programs / "bash"), str(SETUP), *words],
        env={"PATH": str(programs), "HOME": str(folder), "EDGEKIT_VENV": str(folder / "venv")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_root_the_demo_says_what_to_install(tmp_path: Path) -> None:
    done = setup_without_root(tmp_path, "demo")

    assert done.returncode == 1
    assert "sudo apt-get install --no-install-recommends g++-aarch64-linux-gnu" in done.stderr
    assert "openocd" not in done.stderr
    assert not (tmp_path / "venv").exists()


def test_missing_rows_are_those_whose_programs_are_not_there(tmp_path: Path) -> None:
    missing = setup_without_root(tmp_path, "--missing").stdout.split()

    assert {"g++-aarch64", "gcc-arm", "openocd", "qemu-user", "zsh"} <= set(missing)
    assert not {"gcc", "g++"} & set(missing)
