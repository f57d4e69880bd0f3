"""The tutorials, typed as they stand."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from support import tutorials
from support.libraries import share_agents
from support.needs import MICROCONTROLLERS, TWIN, needs
from support.session import link, shared_cache
from support.source import ROOT
from support.twins import remove_all_twins, share_images

START = "README.md"
ON_LINUX = ("first-board.md", "first-farm.md")
"""Pages that start an emulated Linux board."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples of a fresh clone, after the page that says how to start."""
    folder = tmp_path_factory.mktemp("clone") / "edgekit"
    made = shutil.ignore_patterns("build", "*.onnx", "*.png", "digits-in-c", "farm", "matrix")
    shutil.copytree(ROOT / "examples/digits", folder / "examples/digits", ignore=made)
    typed = tutorials.commands(START)
    home = folder.parent
    answers = tutorials.type_in([each.line for each in typed], folder, environment(home))
    assert not list(tutorials.complaints(START, typed, answers, home))
    return folder / "examples" / "digits"


def environment(home: Path) -> dict[str, str]:
    """The environment of a user who has only set up edgekit, on a terminal of 80 columns."""
    own = ("EDGEKIT_STORE", "EDGEKIT_TRUSTED_PATH")
    inherited = {key: value for key, value in os.environ.items() if key not in own}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cache = home / ".cache" / "edgekit"
    changed = {"HOME": str(home), "PATH": path, "EDGEKIT_CACHE_DIR": str(cache), "COLUMNS": "80"}
    return inherited | changed


def walk(page: str, trained: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type a page in a fresh home, and compare what is printed."""
    cache = home / ".cache" / "edgekit"
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(cache))
    if page in ON_LINUX:
        share_images(cache)
    else:
        share_agents(cache)
    for name in ("libraries", "models"):
        link(shared_cache() / name, cache / name)
    folder = home / "edgekit" / "examples" / "digits"
    shutil.copytree(trained, folder)
    for path, text in tutorials.files(page).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    typed = tutorials.commands(page)
    try:
        answers = tutorials.type_in([each.line for each in typed], folder, environment(home))
    finally:
        remove_all_twins()
    assert len(typed) == len(answers) >= 3
    found = list(tutorials.complaints(page, typed, answers, home))
    assert not found, "\n\n".join(found)


@pytest.mark.slow
@needs(*TWIN)
def test_the_first_board(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk("first-board.md", trained, tmp_path, monkeypatch)


@pytest.mark.slow
@needs("ncnn")
def test_the_first_offload(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk("first-offload.md", trained, tmp_path, monkeypatch)


@needs(*MICROCONTROLLERS)
def test_the_first_microcontroller(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk("first-microcontroller.md", trained, tmp_path, monkeypatch)


@pytest.mark.slow
@needs(*MICROCONTROLLERS)
def test_the_first_ci(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk("first-ci.md", trained, tmp_path, monkeypatch)


@pytest.mark.slow
@needs(*TWIN)
def test_the_first_farm(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk("first-farm.md", trained, tmp_path, monkeypatch)


def test_the_comparison_itself_tells_right_from_wrong() -> None:
    printed = ["digits is on local", "built in 3.7 s", "1 region", "highest", "7  0.994865"]

    assert tutorials.matches(["…", "built in 12 s", "1 region", "…"], printed)
    assert tutorials.matches(["…", "7 0.99"], printed)
    assert not tutorials.matches(["…", "built in 12 s", "2 regions", "…"], printed)
    assert not tutorials.matches(["…", "8 0.99"], printed)
    assert not tutorials.matches(["digits is on local"], printed)
    assert tutorials.matches(["digits is …", "…"], printed)
    assert not tutorials.matches(["digits was …", "…"], printed)


def test_a_failing_command_and_an_unexpected_word_are_complaints(tmp_path: Path) -> None:
    lines = ["echo one", "false", "(echo wrong >&2; exit 3)", "echo $?"]
    expected = ["1 word", "", "right", "3"]
    typed = [
        tutorials.Typed(line, tuple(word.splitlines()))
        for line, word in zip(lines, expected, strict=True)
    ]

    answers = tutorials.type_in(lines, tmp_path, dict(os.environ))
    found = list(tutorials.complaints("page", typed, answers, tmp_path))

    assert [answer.code for answer in answers] == [0, 1, 3, 0]
    assert [each.splitlines()[0] for each in found] == [
        "page: echo one prints something else than the page says:",
        "page: false ends with 1:",
        "page: (echo wrong >&2; exit 3) prints something else than the page says:",
    ]
