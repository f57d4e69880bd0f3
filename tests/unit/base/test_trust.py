"""What a project's files make edgekit run or send, and what its user agreed to."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
import tomli

from edgekit.base.consent import Effect, TrustedFile, asking
from edgekit.base.errors import UntrustedProjectError
from edgekit.base.paths import built_in_profiles, data_dir
from edgekit.base.trust import FileKind, effects_of, project_files, revoke, trust
from edgekit.profiles.board import board_names, load_board
from edgekit.profiles.reader import find_profile, list_profiles
from edgekit.profiles.toolchain import load_toolchain, toolchain_names
from edgekit.project.file import find_project

HARMLESS = """\
schema = 1
model = "net.onnx"
board = "rpi4"
keep = 2
[shapes]
x = [1, 3]
[constants]
axes = [1, 2]
[offload]
backends = ["ncnn"]
never = ["softmax"]
[offload.cost]
call_us = 4.0
"""
VENDOR = 'schema = 1\n[cmsis_nn]\npath = "vendor"\n'
DEVICE = '[devices.pi]\nboard = "rpi4"\nhost = "evil.example"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone, and a user who has agreed to nothing."""
    monkeypatch.delenv("EDGEKIT_TRUSTED_PATH")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    clone = tmp_path / "clone"
    (clone / ".git").mkdir(parents=True)
    monkeypatch.chdir(clone)
    return clone


def write(folder: Path, text: str) -> None:
    (folder / "edgekit.toml").write_text(text)


def keys(kind: FileKind, text: str) -> list[str]:
    return [effect.key for effect in effects_of(kind, tomli.loads(text))]


def profile(folder: Path, kind: str, name: str, like: str, *changes: tuple[str, str]) -> None:
    """A shipped profile under another name, in the clone."""
    text = (built_in_profiles(kind) / f"{like}.toml").read_text()  # type: ignore[arg-type]
    for old, new in ((f'name = "{like}"', f'name = "{name}"'), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / kind / f"{name}.toml").write_text(text)


def test_a_project_that_runs_and_sends_nothing_is_never_asked_about(folder: Path) -> None:
    write(folder, HARMLESS)

    project = find_project(folder)

    assert project is not None
    assert keys("project", HARMLESS) == []
    assert not (data_dir() / "trusted.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        DEVICE,
        '[devices.m]\nboard = "mps2-an386"\nserial = "socket://evil.example:1"\n',
        '[devices.m]\nboard = "rpi4"\nlabgrid = "desk"\n',
        '[devices.m]\nboard = "rpi4"\ntwin = true\n',
        '[store]\nurl = "postgresql://evil.example/x"\n',
        '[cmsis_nn]\npath = "vendor"\n',
        "[offload.ncnn]\nthreads = 2\n",
    ],
)
def test_what_a_project_file_runs_or_sends_needs_trust(folder: Path, text: str) -> None:
    write(folder, f"schema = 1\n{text}")

    with pytest.raises(UntrustedProjectError) as refused:
        find_project(folder)

    assert refused.value.exit_code == 14
    assert "edgekit trust" in str(refused.value.hint)
    assert refused.value.details
    assert find_project(folder, only_to_show=True) is not None
    trust(project_files(folder))
    assert find_project(folder) is not None


def test_a_key_that_nobody_thought_of_needs_trust() -> None:
    assert keys("project", "new = 1\n[new-table]\nx = 1\n") == ["new", "new-table.x"]
    assert keys("boards", '[cpu]\nwrapper = "x"\n[exec]\nrun = "x"\n') == [
        "cpu.wrapper",
        "exec.run",
    ]
    assert keys("toolchains", '[tools]\nld = "x"\n') == ["tools.ld"]


@pytest.mark.parametrize(
    ("flag", "harmless"),
    [
        ("-mcpu=cortex-m4", True),
        ("-march=armv8.2-a+fp16", True),
        ("-mfloat-abi=hard", True),
        ("-mthumb", True),
        ("-fplugin=evil", False),
        ("-mllvm", False),
        ("-mcpu=cortex-m4 -fplugin=x", False),
        ("-fuse-ld=evil", False),
        ("-march=../x", False),
    ],
)
def test_flags_that_only_choose_instructions_are_harmless(flag: str, harmless: bool) -> None:
    assert (keys("boards", f'[cpu]\ncompile_flags = ["{flag}"]\n') == []) is harmless


def test_only_what_changes_an_effect_asks_again(folder: Path) -> None:
    write(folder, HARMLESS + DEVICE)
    trust(project_files(folder))

    write(folder, "# a comment\n" + HARMLESS.replace("keep = 2", "keep = 5") + DEVICE)
    assert find_project(folder) is not None
    write(folder, HARMLESS + DEVICE.replace("evil.example", "worse.example"))
    with pytest.raises(UntrustedProjectError):
        find_project(folder)
    write(folder, HARMLESS + DEVICE)
    assert find_project(folder) is not None
    revoke(project_files(folder))
    with pytest.raises(UntrustedProjectError):
        find_project(folder)


@pytest.mark.parametrize("key", ["cmsis_nn.path", "offload.own.model", "later.program"])
def test_a_value_that_looks_like_a_url_counts_whole(key: str) -> None:
    """What stands where a URL has its password is part of a path, for example."""
    table, name = key.rsplit(".", 1)

    def effects(word: str) -> tuple[Effect, ...]:
        return effects_of("project", tomli.loads(f'[{table}]\n{name} = "x://a:{word}@b/c"\n'))

    (one,), (other,) = effects("one"), effects("other")
    assert one != other
    assert "one" in one.value


def test_trust_is_for_one_place(folder: Path, tmp_path: Path) -> None:
    write(folder, HARMLESS + DEVICE)
    trust(project_files(folder))
    other = tmp_path / "other"
    other.mkdir()
    write(other, HARMLESS + DEVICE)

    with pytest.raises(UntrustedProjectError):
        find_project(other)


def test_a_linked_folder_is_the_folder(folder: Path, tmp_path: Path) -> None:
    write(folder, HARMLESS + DEVICE)
    trust(project_files(folder))
    linked = tmp_path / "linked"
    linked.symlink_to(folder)

    project = find_project(linked)

    assert project is not None
    assert project.path == folder / "edgekit.toml"


@pytest.mark.parametrize("listed", ["", "{own}"])
def test_a_link_to_a_trusted_file_is_a_file_of_its_own_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """The paths in it start from the folder of the link, where a stranger's code may be."""
    own = tmp_path / "own"
    own.mkdir()
    write(own, VENDOR)
    trust(project_files(own))
    monkeypatch.setenv("EDGEKIT_TRUSTED_PATH", listed.format(own=own))
    (folder / "edgekit.toml").symlink_to("../own/edgekit.toml")

    with pytest.raises(UntrustedProjectError):
        find_project(folder)

    agreed = project_files(folder)
    assert [(file.path, file.trusted) for file in agreed] == [(folder / "edgekit.toml", False)]
    trust(agreed)
    for place in (folder, own):
        project = find_project(place)
        assert project is not None
        assert project.library_paths["cmsis-nn"] == place / "vendor"
    revoke(agreed)
    with pytest.raises(UntrustedProjectError):
        find_project(folder)
    assert find_project(own) is not None


def test_a_link_out_of_the_users_own_folder_is_not_the_users_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    write(folder, VENDOR)
    (own / "edgekit.toml").symlink_to("../clone/edgekit.toml")
    monkeypatch.setenv("EDGEKIT_TRUSTED_PATH", str(own))

    with pytest.raises(UntrustedProjectError):
        find_project(own)


def test_a_linked_profile_is_a_profile_of_its_own_folder(folder: Path, tmp_path: Path) -> None:
    """A link in a clone to a profile that its user trusts elsewhere is asked about."""
    own = tmp_path / "own"
    profile(own, "toolchains", "mine", "host")
    trust(project_files(own))
    (folder / "toolchains").mkdir()
    (folder / "toolchains" / "mine.toml").symlink_to(own / "toolchains" / "mine.toml")

    with pytest.raises(UntrustedProjectError):
        load_toolchain("mine", folder)
    trust(project_files(folder))
    assert load_toolchain("mine", folder).name == "mine"


def test_what_is_trusted_is_its_users_alone(folder: Path) -> None:
    write(folder, HARMLESS + DEVICE)
    trust(project_files(folder))

    file = data_dir() / "trusted.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("{ damaged")
    with pytest.raises(UntrustedProjectError):
        find_project(folder)


def test_a_profile_of_the_project_needs_trust_before_it_is_used(folder: Path) -> None:
    profile(folder, "toolchains", "evil", "host", ('cc = "', 'cc = "/clone/evil-'))
    profile(folder, "boards", "mine", "nrf52840-dk")

    for load, name in ((load_toolchain, "evil"), (load_board, "mine")):
        with pytest.raises(UntrustedProjectError) as refused:
            load(name, folder)
        assert f"{name}.toml" in refused.value.message
    listed = list_profiles("boards", lambda reader, path: None, folder)
    assert "mine" in {entry.name for entry in listed}
    trust(project_files(folder))
    assert load_toolchain("evil", folder).tools.cc.startswith("/clone/evil-")
    assert load_board("mine", folder).name == "mine"


def test_a_profile_of_the_project_that_hides_a_shipped_one_needs_trust(folder: Path) -> None:
    """A board that the user knows may be compiled by a program that the project names."""
    profile(folder, "toolchains", "host", "host", ('cc = "', 'cc = "/clone/evil-'))

    with pytest.raises(UntrustedProjectError):
        load_toolchain("host", folder)


def test_shipped_profiles_and_the_users_own_need_none(folder: Path, tmp_path: Path) -> None:
    for name in board_names(folder):
        load_board(name, folder)
    for name in toolchain_names(folder):
        load_toolchain(name, folder)
    (tmp_path / "config" / "edgekit").mkdir(parents=True)
    profile(tmp_path / "config" / "edgekit", "boards", "own", "nrf52840-dk")
    assert load_board("own", folder).origin == find_profile("boards", "own")


def test_a_person_is_asked_once_for_the_whole_project(folder: Path) -> None:
    write(folder, HARMLESS + DEVICE)
    profile(folder, "boards", "mine", "nrf52840-dk")
    asked: list[Sequence[TrustedFile]] = []

    def agree(files: Sequence[TrustedFile]) -> bool:
        asked.append(files)
        return True

    with asking(agree):
        find_project(folder)
        load_board("mine", folder)
        find_project(folder)

    (files,) = asked
    assert [file.path.name for file in files] == ["edgekit.toml", "mine.toml"]
    assert any("evil.example" in str(effect) for effect in files[0].effects)
    assert find_project(folder) is not None


def test_a_person_who_does_not_agree_is_asked_again(folder: Path) -> None:
    write(folder, HARMLESS + DEVICE)

    for _ in range(2):
        with asking(lambda files: False), pytest.raises(UntrustedProjectError):
            find_project(folder)


@pytest.mark.parametrize("listed", ["", ":", ".", "clone", "{folder}/sub", "{folder}2"])
def test_folders_that_do_not_hold_the_project_vouch_for_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    write(folder, HARMLESS + DEVICE)
    monkeypatch.setenv("EDGEKIT_TRUSTED_PATH", listed.format(folder=folder))

    with pytest.raises(UntrustedProjectError):
        find_project(folder)


def test_folders_may_be_named_whose_projects_are_the_users_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, HARMLESS + DEVICE)
    monkeypatch.setenv("EDGEKIT_TRUSTED_PATH", f":{folder.parent}")

    assert find_project(folder) is not None


def test_a_password_is_shown_to_nobody(folder: Path) -> None:
    write(folder, '[store]\nurl = "postgresql://bob:hunter2@db.example/x?sslpassword=hunter2"\n')

    (listed,) = project_files(folder)

    assert "db.example" in str(listed)
    assert "hunter2" not in str(listed)
