"""docs/cli.md, docs/exit-codes.md, docs/project-file.md and the picture say what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from support.source import ROOT

import edgekit.base.errors
from edgekit.base.errors import EdgekitError, ProjectError
from edgekit.cli.program import OUTPUT_CLOSED
from edgekit.project.file import find_project

DOCS = ROOT / "docs"


def test_the_reference_of_commands_is_current() -> None:
    generator = runpy.run_path(str(DOCS / "make_cli_reference.py"))

    written = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert written == generator["cli_reference"](), "run python docs/make_cli_reference.py"


def test_the_picture_shows_what_the_first_tutorial_prints() -> None:
    generator = runpy.run_path(str(DOCS / "make_terminal.py"))

    written = (DOCS / "terminal.svg").read_text(encoding="utf-8")
    assert written == generator["terminal"](), "run python docs/make_terminal.py"


def test_every_exit_code_and_error_type_is_explained() -> None:
    rows = re.findall(
        r"^\| (\d+) \|(.*)\|$", (DOCS / "exit-codes.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    documented = {int(code): text for code, text in rows}
    types = [
        value
        for value in vars(edgekit.base.errors).values()
        if isinstance(value, type) and issubclass(value, EdgekitError)
    ]

    for kind in types:
        assert f"`{kind.__name__}`" in documented[kind.exit_code]
    signals = {129, 130, 143, OUTPUT_CLOSED}
    assert set(documented) == {0, *signals, *(kind.exit_code for kind in types)}


def test_the_example_of_a_project_file_is_one(tmp_path: Path) -> None:
    text = (DOCS / "project-file.md").read_text(encoding="utf-8")
    example = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "edgekit.toml").write_text(example, encoding="utf-8")
    np.save(tmp_path / "table.npy", np.arange(3))

    project = find_project(tmp_path)

    assert project is not None
    assert project.board == "rpi4"
    assert set(project.constants) == {"axes", "threshold", "table"}
    assert project.ends.preprocess["image"].resize == "crop"


UNKNOWN = """
schema = 1
zzz = 1
[store]
url = "sqlite:///runs.db"
zzz = 1
[offload]
zzz = 1
[offload.cost]
zzz = 1
[cmsis_nn]
path = "CMSIS-NN"
zzz = 1
[devices.kitchen]
board = "rpi4"
host = "kitchen.local"
zzz = 1
"""


@pytest.mark.parametrize(
    ("text", "tables"),
    [(UNKNOWN, 6), ('schema = 1\n[preprocess.image]\nlayout = "NCHW"\nzzz = 1\n', 1)],
)
def test_every_key_of_a_project_file_is_explained(text: str, tables: int, tmp_path: Path) -> None:
    """The reader lists the keys of a table where one is unknown."""
    (tmp_path / "edgekit.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ProjectError) as caught:
        find_project(tmp_path)
    said = "\n".join([caught.value.message, *caught.value.details])
    lists = [words.split(", ") for words in re.findall(r"one of the keys ((?:\w+, )*\w+)", said)]
    pages = ("project-file.md", "devices.md", "offload.md")
    explained = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in pages)

    assert len(lists) == tables
    assert not [
        key
        for key in {key for keys in lists for key in keys} - {"and"}
        if not re.search(rf"^{key} = |^\[{key}[].]|\.{key}\]$|`{key}\b", explained, re.MULTILINE)
    ]
