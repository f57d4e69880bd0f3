"""A workspace reads the folder that it was given, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.profiles import machine_without_profiles

from edgekit.base.errors import StorageError, UntrustedProjectError
from edgekit.base.paths import built_in_profiles
from edgekit.base.trust import project_files, trust
from edgekit.profiles.board import toolchain_of
from edgekit.project.workspace import open_workspace


def a_project(folder: Path, text: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "edgekit.toml").write_text(f"schema = 1\n{text}")
    return folder


def own_profile(folder: Path, kind: str, name: str, like: str, *changes: tuple[str, str]) -> None:
    text = (built_in_profiles(kind) / f"{like}.toml").read_text()  # type: ignore[arg-type]
    for old, new in ((f'name = "{like}"', f'name = "{name}"'), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / kind).mkdir(exist_ok=True)
    (folder / kind / f"{name}.toml").write_text(text)


def test_two_workspaces_know_their_own_projects_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_without_profiles(monkeypatch, tmp_path)
    first = open_workspace(a_project(tmp_path / "a", 'board = "rpi4"'))
    second = open_workspace(a_project(tmp_path / "b", 'board = "rpi5"'))

    assert (first.board().name, second.board().name) == ("rpi4", "rpi5")


def test_a_folder_is_read_once(tmp_path: Path) -> None:
    workspace = open_workspace(a_project(tmp_path / "a", "keep = 2"))
    first = workspace.project

    (tmp_path / "a" / "edgekit.toml").write_text("no TOML at all")

    assert workspace.project is first


def test_a_board_of_the_folder_takes_the_toolchain_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is found from the current folder."""
    machine_without_profiles(monkeypatch, tmp_path)
    folder = a_project(tmp_path / "clone")
    own_profile(folder, "toolchains", "mine", "aarch64-linux-gnu")
    own_profile(
        folder, "boards", "my-pi", "rpi4", ('toolchain = "aarch64-linux-gnu"', 'toolchain = "mine"')
    )
    monkeypatch.setenv("EDGEKIT_TRUSTED_PATH", str(tmp_path))

    board = open_workspace(folder).board("my-pi")

    assert board.origin == folder / "boards" / "my-pi.toml"
    assert toolchain_of(board).origin == folder / "toolchains" / "mine.toml"


def test_trust_is_asked_for_the_projects_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_without_profiles(monkeypatch, tmp_path)
    monkeypatch.delenv("EDGEKIT_TRUSTED_PATH", raising=False)
    folder = a_project(tmp_path / "clone", '[devices.pi]\nboard = "rpi4"\nhost = "pi.example"\n')

    with pytest.raises(UntrustedProjectError) as refused:
        _ = open_workspace(folder / ".").project
    assert f"edgekit trust {folder}`" in (refused.value.hint or "")
    assert open_workspace(folder).shown_project is not None

    trust(project_files(folder))
    assert open_workspace(folder).project is not None


def test_a_named_store_goes_before_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEKIT_STORE", raising=False)
    monkeypatch.setenv("EDGEKIT_TRUSTED_PATH", str(tmp_path))
    folder = a_project(tmp_path / "a", '[store]\nurl = "sqlite:///team.db"\n')

    assert open_workspace(folder).store == f"sqlite:///{folder / 'team.db'}"
    assert open_workspace(folder, "sqlite:////other.db").store == "sqlite:////other.db"


def test_relative_paths_start_at_the_folder_as_it_was_named(tmp_path: Path) -> None:
    assert open_workspace().path("net.onnx") == Path("net.onnx")
    assert open_workspace(tmp_path).path("net.onnx") == tmp_path / "net.onnx"
    assert open_workspace(tmp_path).path("/net.onnx") == Path("/net.onnx")


def test_a_deleted_current_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(StorageError, match="deleted or replaced"):
        open_workspace()
