"""A clone whose profiles name a program: it is not run before somebody agreed to it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.building import command_line, environment, write_model

from edgekit.base.paths import built_in_profiles

_PATIENCE_SECONDS = 240
PROJECT = """\
schema = 1
model = "net.onnx"
board = "local"
[devices.pi]
board = "rpi4"
host = "evil.example"
"""
_BACKGROUND = """
import fcntl, os, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(subprocess.run(sys.argv[1:], preexec_fn=os.setpgrp).returncode)
"""


@dataclass(frozen=True)
class Clone:
    folder: Path
    mark: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = environment({"XDG_DATA_HOME": str(self.folder.parent / "data")})
        return {k: v for k, v in kept.items() if k != "EDGEKIT_TRUSTED_PATH"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """There is no terminal to ask on."""
        return subprocess.run(
            command_line(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )

    def typed(
        self, answer: str, *arguments: str, started_by: tuple[str, ...] = ()
    ) -> tuple[int, str]:
        """A person at a terminal gives one answer, if asked. Gives the exit code and the screen."""
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        process = subprocess.Popen(
            [*started_by, *command_line(*arguments)],
            cwd=self.folder,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        screen = b""
        try:
            while block := os.read(ours, 4096):
                screen += block
        except OSError:  # how Linux says that a terminal's other side is closed
            pass
        os.close(ours)
        return process.wait(timeout=_PATIENCE_SECONDS), screen.decode(errors="replace")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Its toolchain `host` hides edgekit's own and names a program of the clone."""
    folder, mark = tmp_path / "clone", tmp_path / "mark"
    (folder / ".git").mkdir(parents=True)
    (folder / "toolchains").mkdir()
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n: >'{mark}'\nexit 1\n")
    program.chmod(0o755)
    text = (built_in_profiles("toolchains") / "host.toml").read_text()
    (folder / "toolchains" / "host.toml").write_text(
        re.sub(r'^cc = ".*"$', f'cc = "{program}"', text, flags=re.MULTILINE)
    )
    (folder / "edgekit.toml").write_text(PROJECT)
    write_model(folder / "net.onnx")
    return Clone(folder, mark)


@pytest.mark.parametrize("named", ["toolchains", "./toolchains", "~nobody-at-all/../toolchains"])
def test_a_relative_search_path_makes_no_clone_the_users_own(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("EDGEKIT_TOOLCHAIN_PATH", named)

    done = clone.run("doctor", "--board", "local")

    assert done.returncode == 2
    assert "EDGEKIT_TOOLCHAIN_PATH" in done.stderr
    assert not clone.mark.exists()


def test_where_nobody_can_be_asked_it_is_an_error_that_names_the_command(clone: Clone) -> None:
    done = clone.run("build", "--json")

    assert done.returncode == 14
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "UntrustedProjectError"
    assert f"edgekit trust {clone.folder}" in error["hint"]
    assert any("evil.example" in line for line in error["details"])
    assert not clone.mark.exists()


def test_a_job_of_ci_is_never_asked_even_at_a_terminal(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    code, screen = clone.typed("y", "build")

    assert code == 14
    assert f"edgekit trust {clone.folder}" in screen
    assert not clone.mark.exists()


def test_a_profile_alone_is_an_error_too(clone: Clone) -> None:
    (clone.folder / "edgekit.toml").unlink()

    for arguments in (("build", "net.onnx", "--board", "local"), ("doctor",)):
        done = clone.run(*arguments)
        assert done.returncode == 14, done.stderr
        assert str(clone.folder / "compiler") in done.stderr
    assert not clone.mark.exists()


def test_a_person_who_says_no_is_obeyed(clone: Clone) -> None:
    code, screen = clone.typed("n", "build")

    assert code == 14
    assert "evil.example" in screen
    assert str(clone.folder / "compiler") in screen
    assert not clone.mark.exists()


def test_a_question_without_an_answer_says_that_the_command_waits(clone: Clone) -> None:
    end_of_input = "\x04"

    code, screen = clone.typed(end_of_input, "farm", "up")

    assert code == 130
    assert "This command waits. [y/N]:" in screen
    assert screen.splitlines()[-1].startswith("error: interrupted")


def test_a_command_in_the_background_of_a_terminal_does_not_ask(clone: Clone) -> None:
    """Its terminal would stop it at the question, without a word."""
    code, screen = clone.typed("y", "farm", "up", started_by=(sys.executable, "-c", _BACKGROUND))

    assert code == 14
    assert "[y/N]" not in screen
    assert f"edgekit trust {clone.folder}" in screen


def test_a_person_who_says_yes_is_asked_once(clone: Clone) -> None:
    code, screen = clone.typed("y", "doctor")
    assert "[y/N]" in screen
    assert code != 14
    assert clone.mark.exists()

    again = clone.run("doctor")
    assert again.returncode != 14
    (clone.folder / "edgekit.toml").write_text(PROJECT.replace("evil", "worse"))
    assert clone.run("build").returncode == 14


def test_the_command_shows_trusts_and_takes_it_back(clone: Clone) -> None:
    def trusted(*arguments: str) -> list[bool]:
        done = clone.run("trust", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [file["trusted"] for file in json.loads(done.stdout)["files"]]

    assert trusted("--show") == [False, False]
    assert trusted() == [True, True]
    assert trusted("--show", str(clone.folder)) == [True, True]
    assert clone.run("doctor").returncode != 14
    assert trusted("--revoke") == [False, False]
    assert clone.run("doctor").returncode == 14
    assert clone.run("trust", "--show", "--revoke").returncode == 2


def test_what_only_shows_the_files_needs_no_trust(clone: Clone) -> None:
    for arguments in (
        ("toolchains",),
        ("toolchains", "show", "host"),
        ("toolchains", "check", "toolchains/host.toml"),
        ("boards",),
        ("device", "list"),
        ("inspect",),
        ("trust", "--show"),
    ):
        done = clone.run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    assert not clone.mark.exists()


def test_a_profile_that_the_user_makes_is_trusted(clone: Clone) -> None:
    (clone.folder / "toolchains" / "host.toml").unlink()
    (clone.folder / "edgekit.toml").unlink()

    assert clone.run("boards", "new", "mine", "--like", "nrf52840-dk").returncode == 0
    assert clone.run("doctor", "--board", "mine").returncode != 14

    file = clone.folder / "boards" / "mine.toml"
    file.write_text(file.read_text().replace("-mfloat-abi=hard", "-fplugin=evil"))
    assert clone.run("doctor", "--board", "mine").returncode == 14


def test_a_copy_of_a_strangers_profile_is_none_of_the_users(clone: Clone) -> None:
    done = clone.run("toolchains", "new", "mine", "--like", "host")

    assert done.returncode == 14
    assert not (clone.folder / "toolchains" / "mine.toml").exists()
