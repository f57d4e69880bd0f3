from __future__ import annotations

from pathlib import Path

import pytest
from support.profiles import machine_without_profiles

from edgekit.paths import built_in_profiles, cache_dir, config_dir, data_dir, profile_search_path


def test_folders_are_under_home_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_without_profiles(monkeypatch, tmp_path)
    home = tmp_path / "home"
    assert config_dir() == home / ".config/edgekit"
    assert cache_dir() == home / ".cache/edgekit"
    assert data_dir() == home / ".local/share/edgekit"


def test_xdg_variables_move_the_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, folder in (
        ("XDG_CONFIG_HOME", config_dir),
        ("XDG_CACHE_HOME", cache_dir),
        ("XDG_DATA_HOME", data_dir),
    ):
        monkeypatch.delenv("EDGEKIT_CACHE_DIR", raising=False)
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert folder() == tmp_path / variable / "edgekit"


def test_the_cache_can_be_moved_alone_and_is_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", "somewhere")
    assert cache_dir() == work / "somewhere"
    assert config_dir() == tmp_path / "home/.config/edgekit"


def test_profiles_are_sought_here_then_in_the_variable_then_at_home_then_built_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    monkeypatch.setenv("EDGEKIT_BOARD_PATH", f"{tmp_path}/team::{tmp_path}/lab")
    assert profile_search_path("boards") == (
        work / "boards",
        tmp_path / "team",
        tmp_path / "lab",
        tmp_path / "home/.config/edgekit/boards",
        built_in_profiles("boards"),
    )
    assert tmp_path / "team" not in profile_search_path("toolchains")


def test_a_folder_is_sought_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built_in_profiles("boards").parent)
    folders = profile_search_path("boards")
    assert len(folders) == len(set(folders))


def test_the_built_in_profiles_are_there() -> None:
    assert (built_in_profiles("boards") / "local.toml").is_file()
    assert (built_in_profiles("toolchains") / "host.toml").is_file()
