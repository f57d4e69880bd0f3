"""How tools of a toolchain are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.cross.tools import run_tool


def test_what_a_tool_keeps_for_a_moment_lies_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's weights may be larger than what /tmp holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()

    said = run_tool(("sh", "-c", "mktemp"), folder=Path("scratch"), doing="make a file")

    assert Path(said.strip()).parent == tmp_path / "scratch"
