"""docs/cli.md, docs/exit-codes.md and docs/project-file.md say what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
from support.source import ROOT

import edgekit.base.errors
from edgekit.base.errors import EdgekitError
from edgekit.cli.program import OUTPUT_CLOSED
from edgekit.project.file import find_project

DOCS = ROOT / "docs"


def test_the_reference_of_commands_is_current() -> None:
    generator = runpy.run_path(str(DOCS / "make_cli_reference.py"))

    written = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert written == generator["cli_reference"](), "run python docs/make_cli_reference.py"


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
    assert project.preprocess["image"].resize == "crop"
