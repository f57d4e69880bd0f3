"""The board that a named device implies."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.api.choice import with_board_of
from edgekit.api.device import Setting
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT
from edgekit.project.workspace import open_workspace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose user knows a device."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    known = tmp_path / "config" / "edgekit" / "devices.toml"
    known.parent.mkdir(parents=True)
    known.write_text('schema = 1\n[devices.wing]\nboard = "stm32f405"\nserial = "/dev/ttyACM9"\n')
    return tmp_path


def board_of(folder: Path, device: str | None, board: str | None = None) -> str | None:
    setting = Setting(open_workspace(folder), SILENT, None)
    found = with_board_of(setting, {"board": board}, device)["board"]
    return getattr(found, "name", found)


def test_a_named_device_says_which_board_is_meant(folder: Path) -> None:
    assert board_of(folder, "wing") == "stm32f405"
    assert board_of(folder, "local") == "local"
    assert board_of(folder, "wing", "mps2-an386") == "mps2-an386", "the caller's word goes first"
    assert board_of(folder, None) is None


def test_a_device_that_is_not_known_is_told_before_a_board_is_asked_for(folder: Path) -> None:
    with pytest.raises(UsageError, match="there is no device 'wings'") as caught:
        board_of(folder, "wings")
    assert "wing" in caught.value.hint


def test_the_board_of_a_project_goes_before_that_of_a_device(folder: Path) -> None:
    (folder / "edgekit.toml").write_text('schema = 1\nboard = "mps2-an386"\n')

    assert board_of(folder, "wing") is None
