from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.profiles import machine_without_profiles

from edgekit.backends.cmsis_nn.sources import find_cmsis_nn
from edgekit.backends.tensorrt.headers import find_headers
from edgekit.base.errors import UsageError
from edgekit.base.paths import (
    built_in_profiles,
    cache_dir,
    config_dir,
    data_dir,
    named_folders,
    named_path,
    place_of,
    profile_search_path,
)
from edgekit.cross.sources import built_in_recipe, library_version
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain


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


def test_relative_xdg_variables_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where platformdirs takes them, as its older releases do."""
    machine_without_profiles(monkeypatch, tmp_path)
    for name, found, at_home in (
        ("config", config_dir, ".config/edgekit"),
        ("cache", cache_dir, ".cache/edgekit"),
        ("data", data_dir, ".local/share/edgekit"),
    ):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", name)
        assert found() == tmp_path / "home" / at_home
        monkeypatch.setattr(f"platformdirs.user_{name}_path", lambda *_, **__: Path("edgekit"))
        assert found() == tmp_path / "home" / at_home


def test_the_cache_can_be_moved_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine_without_profiles(monkeypatch, tmp_path)
    for named, meant in ((f"{tmp_path}/cache", "cache"), ("~/cache", "home/cache")):
        monkeypatch.setenv("EDGEKIT_CACHE_DIR", named)
        assert cache_dir() == tmp_path / meant
    assert config_dir() == tmp_path / "home/.config/edgekit"


@pytest.mark.parametrize("relative", ["code", "./code", "../team/code", "~no-such-user/code", " "])
@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("EDGEKIT_CACHE_DIR", cache_dir),
        ("EDGEKIT_BOARD_PATH", lambda: profile_search_path("boards")),
        ("EDGEKIT_TOOLCHAIN_PATH", lambda: profile_search_path("toolchains")),
        ("EDGEKIT_CMSIS_NN", find_cmsis_nn),
        ("EDGEKIT_LIBRARY_NCNN", lambda: library_version(built_in_recipe("ncnn"))),
        ("TENSORRT_INCLUDE", lambda: find_headers(load_board("local"), load_toolchain("host"))),
    ],
)
def test_a_variable_that_names_code_takes_absolute_paths_only(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
    read: Callable[[], object],
    relative: str,
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    (work / "code").mkdir()
    monkeypatch.setenv(variable, relative)

    with pytest.raises(UsageError, match=variable) as refused:
        read()

    assert f"{work / relative}" in str(refused.value.hint)


def test_one_relative_folder_in_a_list_is_refused_and_empty_ones_name_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("A_LIST", f":{tmp_path}/a::~/b:")
    assert named_folders("A_LIST") == (tmp_path / "a", tmp_path / "b")
    monkeypatch.setenv("A_LIST", f"{tmp_path}/a:b")
    with pytest.raises(UsageError, match="'b'"):
        named_folders("A_LIST")
    monkeypatch.setenv("A_LIST", "")
    assert named_folders("A_LIST") == ()
    assert named_path("A_LIST") is None


def test_a_link_is_a_file_of_the_folder_that_it_is_in(tmp_path: Path) -> None:
    real, clone = tmp_path / "real", tmp_path / "clone"
    real.mkdir()
    clone.mkdir()
    (real / "file").touch()
    (clone / "file").symlink_to(real / "file")
    (tmp_path / "linked").symlink_to(real)
    assert place_of(clone / "file") == clone / "file"
    assert place_of(tmp_path / "linked" / "file") == real / "file"


def test_profiles_are_sought_in_the_workspace_then_in_the_variable_then_at_home_then_built_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    monkeypatch.setenv("EDGEKIT_BOARD_PATH", f"{tmp_path}/team::{tmp_path}/lab")
    assert profile_search_path("boards", work) == (
        work / "boards",
        tmp_path / "team",
        tmp_path / "lab",
        tmp_path / "home/.config/edgekit/boards",
        built_in_profiles("boards"),
    )
    assert tmp_path / "team" not in profile_search_path("toolchains", work)
    assert profile_search_path("boards")[0] == tmp_path / "team"


def test_a_folder_is_sought_once() -> None:
    folders = profile_search_path("boards", built_in_profiles("boards").parent)
    assert len(folders) == len(set(folders))


def test_the_built_in_profiles_are_there() -> None:
    assert (built_in_profiles("boards") / "local.toml").is_file()
    assert (built_in_profiles("toolchains") / "host.toml").is_file()
