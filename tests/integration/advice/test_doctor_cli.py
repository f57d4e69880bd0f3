"""edgekit doctor on this machine, and on one that it makes poorer."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from support.profiles import TOOLCHAIN, machine_without_profiles, write_profile

from edgekit.advice.doctor import Check, DoctorReport, examine
from edgekit.base.tvm_compat import PINNED
from edgekit.cli.program import run_command_line
from edgekit.profiles.board import load_board


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return machine_without_profiles(monkeypatch, tmp_path)


def _check(report: DoctorReport, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def _board_with(work: Path, monkeypatch: pytest.MonkeyPatch, **toolchain: str) -> str:
    """A board for this machine whose toolchain is what a test says."""
    values = {"triple": "native", "cc": "cc", "cxx": "c++", "minimum_version": "1", **toolchain}
    write_profile(work / "toolchains", "mine", TOOLCHAIN, **values)
    local = load_board("local").origin.read_text()
    text = local.replace('"local"\ntitle', '"poor"\ntitle').replace('"host"', '"mine"')
    write_profile(work / "boards", "poor", text)
    return "poor"


def test_this_machine_can_be_built_for(work: Path) -> None:
    report = examine(load_board("local"))
    assert report.ready
    for name, wanted in PINNED:
        assert _check(report, name).found == wanted
    assert all(check.fix for check in report.checks)


def test_nothing_that_is_optional_keeps_a_board_from_being_ready(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = work / "bin"
    folder.mkdir()
    board = load_board("local")
    for tool in ("cc", "c++", "as", "ld"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    report = examine(board)
    assert not _check(report, "strip").ok
    assert report.ready


def test_a_missing_compiler_is_named_with_the_command_that_installs_it(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _board_with(work, monkeypatch, cc="no-such-cc")
    report = examine(load_board(name, work))
    check = _check(report, "no-such-cc")
    assert (check.required, check.ok, check.found) == (True, False, "not installed")
    assert "apt-get install -y some-compiler" in (check.fix or "")
    assert not report.ready


def test_a_compiler_that_is_too_old_is_not_enough(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = examine(load_board(_board_with(work, monkeypatch, minimum_version="999"), work))
    assert "999 or newer" in _check(report, "cc").found
    assert not report.ready


def test_a_compiler_that_cannot_compile_is_not_enough(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = work / "broken-cc"
    broken.write_text(
        '#!/bin/sh\ntest "$1" = --version && echo cc 12.2.0 && exit\n'
        "echo 'probe:1: fatal error: math.h: No such file or directory' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    report = examine(load_board(_board_with(work, monkeypatch, cc=str(broken)), work))
    assert "math.h: No such file" in _check(report, str(broken)).found
    assert not report.ready


def test_a_sysroot_that_is_not_there_is_required(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _board_with(work, monkeypatch)
    path = work / "toolchains/mine.toml"
    path.write_text('sysroot = "/no/such/sysroot"\n' + path.read_text())
    report = examine(load_board(name, work))
    assert "/no/such/sysroot" in _check(report, "sysroot").found
    assert not report.ready


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    return run_command_line(["doctor", *arguments]), capsys.readouterr().out


def test_the_exit_code_says_whether_the_board_can_be_built_for(
    capsys: pytest.CaptureFixture[str], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = _run(capsys)
    assert code == 0
    assert "local can be built for" in out
    name = _board_with(work, monkeypatch, cxx="no-such-c++")
    code, out = _run(capsys, "--board", name)
    assert code == 5
    assert "no-such-c++" in out
    assert "apt-get install -y some-compiler" in out


def test_a_microcontroller_needs_no_compiler_of_cpp() -> None:
    board = load_board("stm32f405")
    names = {check.name for check in examine(board).checks}
    assert "arm-none-eabi-gcc" in names
    assert not any("++" in name for name in names)


def test_scripts_get_one_document_ready_or_not(
    capsys: pytest.CaptureFixture[str], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _board_with(work, monkeypatch, cxx="no-such-c++")
    for board, code in (("local", 0), (name, 5)):
        ended, out = _run(capsys, "--board", board, "--json")
        document: Any = json.loads(out)
        assert ended == code
        assert (document["board"], document["ready"]) == (board, code == 0)
        python = next(check for check in document["checks"] if check["name"] == "Python")
        assert python["found"] == ".".join(map(str, sys.version_info[:3]))


def test_the_doctor_looks_for_what_the_projects_board_needs(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    (work / "edgekit.toml").write_text('schema = 1\nboard = "mps2-an386"\n')
    _, out = _run(capsys)
    assert "arm-none-eabi-gcc" in out
    assert "qemu-system-arm" in out


def test_what_a_linux_boards_twin_needs_is_good_to_have(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board("rpi4")
    monkeypatch.setenv("PATH", str(work))  # where nothing is
    report = examine(board)
    for tool, package in (
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("qemu-img", "qemu-utils"),
        ("ssh", "openssh-client"),
    ):
        check = _check(report, tool)
        assert (check.required, check.ok, check.found) == (False, False, "not installed")
        assert check.fix is not None and check.fix.endswith(f"apt-get install -y {package}")
    assert len({check.name for check in report.checks}) == len(report.checks)


def test_a_microcontroller_needs_a_compiler_and_would_like_what_writes_to_it(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(work))  # where nothing is
    report = examine(load_board("stm32f746g-disco"))
    assert not report.ready
    assert _check(report, "arm-none-eabi-gcc").required
    check = _check(report, "openocd")
    assert (check.required, check.ok) == (False, False)
    assert check.fix is not None and check.fix.endswith("apt-get install -y openocd")


def test_an_unknown_board_is_an_error_and_no_report(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    assert _run(capsys, "--board", "nonesuch") == (3, "")
