"""edgekit toolchains build, on libraries that need no network: those of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def edgekit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.fixture(autouse=True)
def own_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    for name, archives in (
        ("ncnn", ["libncnn.a"]),
        ("acl", ["libarm_compute-static.a"]),  # as newer releases have it: one archive
        ("onnxruntime", ["libonnxruntime.so.1"]),
    ):
        (tmp_path / name / "include").mkdir(parents=True)
        (tmp_path / name / "lib").mkdir()
        for archive in archives:
            (tmp_path / name / "lib" / archive).write_bytes(b"!<arch>\n")
        monkeypatch.setenv(f"EDGEKIT_LIBRARY_{name.upper()}", str(tmp_path / name))


def test_every_library_of_a_board_is_reported(tmp_path: Path) -> None:
    done = edgekit("toolchains", "build", "rpi4", "--json")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["board"], report["toolchain"]) == ("rpi4", "aarch64-linux-gnu")
    assert [(one["name"], one["folder"]) for one in report["libraries"]] == [
        (name, str(tmp_path / name)) for name in ("ncnn", "acl", "onnxruntime")
    ]


def test_one_library_can_be_asked_for_and_a_misspelled_one_is_told() -> None:
    one = edgekit("toolchains", "build", "rpi4", "--library", "acl")
    wrong = edgekit("toolchains", "build", "rpi4", "--library", "ncn")

    assert one.returncode == 0, one.stderr
    assert "acl" in one.stdout
    assert "ncnn" not in one.stdout
    assert wrong.returncode == 2
    assert "did you mean ncnn?" in wrong.stderr


def test_a_board_that_offloads_nothing_needs_nothing() -> None:
    done = edgekit("toolchains", "build", "nrf52840-dk")

    assert done.returncode == 0
    assert "offloads to no library" in done.stdout


def test_a_folder_that_is_no_such_library_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_LIBRARY_ACL", str(tmp_path / "nowhere"))
    done = edgekit("toolchains", "build", "rpi4", "--library", "acl")

    assert done.returncode == 6
    assert "which is no acl" in done.stderr
    assert "lib/libarm_compute-static.a" in done.stderr
