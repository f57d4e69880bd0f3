"""Tab completion, asked for by the shells themselves."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.needs import needs
from support.profiles import machine_without_profiles

SHELLS = [
    pytest.param(shell, marks=needs(*required))
    for shell, required in (("bash", ()), ("zsh", ("zsh",)), ("fish", ("fish",)))
]


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with things to complete, and edgekit on the path."""
    folder = machine_without_profiles(monkeypatch, tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "twins" / "machines" / "garden").mkdir(parents=True)
    (folder / "net.onnx").touch()
    (folder / "notes.txt").touch()
    bundle = folder / "bundles" / "net-local"
    bundle.mkdir(parents=True)
    (bundle / "manifest.json").touch()
    for name, content in (("sealed", "manifest.json"), ("data", "data.csv")):
        with ZipFile(folder / "bundles" / f"{name}.zip", "w") as archive:
            archive.writestr(content, "{}")
    (folder / "bundles" / "broken.zip").write_bytes(b"PK")
    (folder / ".hidden").mkdir()
    (folder / "some models").mkdir()
    (folder / "some models" / "it's $1, *.onnx").touch()
    (folder / "edgekit.toml").write_text('schema = 1\n[devices.kitchen]\nboard = "rpi4"\n')
    programs = tmp_path / "programs"
    programs.mkdir()
    script = programs / "edgekit"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m edgekit "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return folder


def complete(shell: str, line: str, folder: Path) -> set[str]:
    """What the shell offers for the last word of a line."""
    words = line.split(" ")
    commands = {
        "bash": 'eval "$(edgekit completion bash)"\n'
        f"COMP_WORDS=({' '.join(words[:-1])} {shlex.quote(words[-1])})\n"
        f"COMP_CWORD={len(words) - 1}\n"
        "_edgekit_completion edgekit\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n',
        # The parts of zsh's completion system that need a terminal, as functions that print.
        "zsh": "compdef() { }\n"
        '_describe() { shift 2; printf "%s\\n" "${(@P)1%%:*}" }\n'
        'compadd() { printf "%s\n" "${(@P)@[-1]}" }\n'
        'eval "$(edgekit completion zsh)"\n'
        f"words=({' '.join(words[:-1])} {shlex.quote(words[-1])})\n"
        f"CURRENT={len(words)}\n"
        "_edgekit_completion\n",
        "fish": f"edgekit completion fish | source\ncomplete -C {shlex.quote(line)}\n",
    }
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}
    result = subprocess.run(
        [shell, *flags[shell], "-c", commands[shell]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return {offer.split("\t")[0] for offer in result.stdout.split("\n") if offer}


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_commands_options_and_names(shell: str, project: Path) -> None:
    assert "inspect" in complete(shell, "edgekit in", project)
    assert "--shape" in complete(shell, "edgekit inspect --sh", project)
    assert {"rpi3", "rpi4", "rpi5"} <= complete(shell, "edgekit build --board rpi", project)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("edgekit ", {"init", "build", "deploy", "completion"}),
        ("edgekit inspect ", {"net.onnx", "bundles"}),
        ("edgekit inspect s", {"some models"}),
        ("edgekit run bundles/", {"bundles/net-local", "bundles/sealed.zip"}),
        ("edgekit run ", {"bundles", "some models"}),
        ("edgekit build --toolchain arm", {"arm-none-eabi"}),
        ("edgekit deploy --device k", {"kitchen"}),
        ("edgekit completion ", {"bash", "zsh", "fish"}),
        ("edgekit twin up ", {"rpi4", "garden"}),
        ("edgekit twin down ", {"garden"}),
    ],
)
def test_every_kind_of_word_is_completed(line: str, offered: set[str], project: Path) -> None:
    found = complete("bash", line, project)

    assert offered <= found
    assert not found & {"notes.txt", "bundles/data.zip", "bundles/broken.zip", ".hidden"}


@pytest.mark.parametrize("typed", ["some", "'some", '"some', "some\\ m", "./some"])
def test_bash_inserts_a_name_as_one_word_whatever_is_in_it(typed: str, project: Path) -> None:
    """Real keys complete the folder up to its slash, then the file in it."""
    word = completed_by_keys(f"edgekit inspect {typed}\t\t", project)

    assert word.removeprefix("./") == "some models/it's $1, *.onnx"


def completed_by_keys(keys: str, folder: Path) -> str:
    """The last argument that a program gets when a person types these keys into bash."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "dumb",
        "PS1": "$ ",
        "HISTFILE": "",
        "INPUTRC": "/dev/null",
    }
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        close_fds=True,
    )
    os.close(theirs)
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        terminal.write(b'eval "$(edgekit completion bash)"\n')
        result = folder / "typed"
        # Ctrl-A goes to the start of the line, so that what was completed is only written down.
        terminal.write(
            f"{keys}\x01{sys.executable} -c 'import sys; print(end=sys.argv[-1])' ".encode()
        )
        terminal.write(b"\x05 > typed; exit\n")
        with suppress(OSError):  # Linux's way of saying that the shell has closed its side
            while terminal.read(4096):
                pass
    shell.wait()
    return result.read_text()


def test_a_broken_project_file_does_not_disturb_a_line_being_typed(project: Path) -> None:
    (project / "edgekit.toml").write_text("schema = ")

    assert complete("bash", "edgekit deploy --device ", project) == set()
