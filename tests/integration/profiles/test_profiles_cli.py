"""edgekit boards and edgekit toolchains, as a person and a script use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.profiles import LINUX_BOARD, machine_without_profiles, write_profile

from edgekit.base.paths import built_in_profiles
from edgekit.cli.program import run_command_line
from edgekit.profiles.board import load_board


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return machine_without_profiles(monkeypatch, tmp_path)


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_command_line(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def _json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    ended, out, _ = _run(capsys, *arguments, "--json")
    assert ended == code
    return json.loads(out)


@pytest.mark.parametrize(
    ("kind", "name"), [("boards", "rpi4"), ("toolchains", "aarch64-linux-gnu")]
)
def test_lists_show_every_profile(
    capsys: pytest.CaptureFixture[str], work: Path, kind: str, name: str
) -> None:
    code, out, err = _run(capsys, kind)
    listed = {line.split()[0] for line in out.splitlines()[1:]}
    assert (code, err) == (0, "")
    assert listed == {path.stem for path in built_in_profiles(kind).glob("*.toml")}  # type: ignore[arg-type]
    assert {entry["name"] for entry in _json(capsys, kind)} == listed
    assert name in listed


def test_a_broken_profile_is_pointed_out_beside_the_sound_ones(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    write_profile(work / "boards", "broken", "schema = 1\nname = ")
    code, out, err = _run(capsys, "boards")
    assert code == 0
    assert "rpi4" in out
    assert "broken cannot be used" in err
    assert "line 2" in err
    entry = next(e for e in _json(capsys, "boards") if e["name"] == "broken")
    assert entry["profile"] is None
    assert "line 2" in entry["trouble"]


def test_show_says_what_the_profile_says_and_which_file_won(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    mine = write_profile(work / "boards", "rpi4", LINUX_BOARD)
    code, out, _ = _run(capsys, "boards", "show", "rpi4")
    assert code == 0
    fields = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["profile", str(mine)] in fields
    assert ["hides", str(built_in_profiles("boards") / "rpi4.toml")] in fields
    shown = _json(capsys, "boards", "show", "rpi4")
    assert shown["profile"]["title"] == "A board"
    assert shown["profile"]["memory"]["ram"] == 2 << 30
    assert shown["hides"] == [str(built_in_profiles("boards") / "rpi4.toml")]


def test_every_profile_can_be_shown(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    for kind in ("boards", "toolchains"):
        for entry in _json(capsys, kind):
            code, out, _ = _run(capsys, kind, "show", entry["name"])
            assert code == 0
            assert entry["profile"]["title"] in out


@pytest.mark.parametrize(
    ("board", "words"),
    [
        ("rpi4", "qemu-system-aarch64, machine virt"),
        ("nrf52840-dk", "none: mps2-an386 has the same core and other memory"),
        ("generic-x86-64-v3", "none"),
    ],
)
def test_a_board_says_whether_it_has_a_twin(
    capsys: pytest.CaptureFixture[str], board: str, words: str
) -> None:
    code, out, _ = _run(capsys, "boards", "show", board)
    (line,) = (line for line in out.splitlines() if line.startswith("emulated twin"))
    assert code == 0
    assert line.split(maxsplit=2)[2].startswith(words)


def test_an_unknown_board_is_an_error_that_names_the_nearest(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    code, out, err = _run(capsys, "boards", "show", "rpi44")
    assert (code, out) == (3, "")
    assert "did you mean rpi4?" in err
    document = _json(capsys, "boards", "show", "rpi44", code=3)
    assert document["error"]["type"] == "ProfileError"


@pytest.mark.parametrize(
    ("kind", "like"),
    [("boards", path.stem) for path in built_in_profiles("boards").glob("*.toml")]
    + [("toolchains", path.stem) for path in built_in_profiles("toolchains").glob("*.toml")],
)
def test_a_new_profile_is_the_old_one_under_its_own_name_comments_and_all(
    capsys: pytest.CaptureFixture[str], work: Path, kind: str, like: str
) -> None:
    made = _json(capsys, kind, "new", "my-own", "--like", like)
    path = work / kind / "my-own.toml"
    assert (made["name"], work / made["path"]) == ("my-own", path)
    before = (built_in_profiles(kind) / f"{like}.toml").read_text()  # type: ignore[arg-type]
    changed = [
        (old, new)
        for old, new in zip(before.split("\n"), path.read_text().split("\n"), strict=True)
        if old != new
    ]
    assert [new.split(" = ")[0] for _, new in changed] == ["name", "title"]
    code, _, _ = _run(capsys, kind, "check", str(path))
    assert code == 0
    shown = _json(capsys, kind, "show", "my-own")["profile"]
    assert shown["name"] == "my-own"
    assert shown["title"].startswith("my-own, like ")


def test_a_new_profile_overwrites_nothing_unless_told(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    path = write_profile(work / "boards", "mine", "precious")
    code, _, err = _run(capsys, "boards", "new", "mine", "--like", "rpi4")
    assert code == 2
    assert "--force" in err
    assert path.read_text() == "precious"
    assert _run(capsys, "boards", "new", "mine", "--like", "rpi4", "--force")[0] == 0
    assert 'name = "mine"' in path.read_text()


def test_a_new_profile_goes_where_it_is_told_and_must_be_findable_there(
    capsys: pytest.CaptureFixture[str], work: Path, tmp_path: Path
) -> None:
    code, _, _ = _run(
        capsys, "boards", "new", "mine", "--like", "rpi4", "-o", str(tmp_path / "far/mine.toml")
    )
    assert code == 0
    assert (tmp_path / "far/mine.toml").is_file()
    code, _, err = _run(capsys, "boards", "new", "mine", "--like", "rpi4", "-o", "other.toml")
    assert code == 2
    assert "mine.toml" in err


@pytest.mark.parametrize("name", ["../evil", "Loud", "a b", "", "x" * 64])
def test_a_new_profile_needs_a_name_that_is_one(
    capsys: pytest.CaptureFixture[str], work: Path, name: str
) -> None:
    code, _, _ = _run(capsys, "boards", "new", name, "--like", "rpi4")
    assert code == 2
    assert not list(work.parent.rglob("*.toml"))


def test_a_folder_that_cannot_be_written_is_a_storage_error(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    (work / "boards").write_text("a file where a folder should be")
    code, _, err = _run(capsys, "boards", "new", "mine", "--like", "rpi4")
    assert code == 9
    assert "mine" in err


def test_check_lists_every_problem(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    text = LINUX_BOARD.replace("cores = 4", "cores = 0").replace("[twin]", "[tiwn]")
    path = write_profile(work / "boards", "mine", text)
    code, out, err = _run(capsys, "boards", "check", str(path))
    assert (code, out) == (3, "")
    assert "cpu.cores: found 0, expected a whole number from 1 to 1024" in err
    assert "did you mean twin?" in err
    checked = _json(capsys, "boards", "check", str(path), code=3)
    assert checked["ok"] is False
    assert [problem["key"] for problem in checked["problems"]] == ["cpu.cores", "tiwn"]
    assert checked["problems"][1]["nearest"] == "twin"


@pytest.mark.parametrize(
    ("toolchain", "found"),
    [
        ("arm-none-eabi", '"arm-none-eabi", which makes code for cortex-m'),
        ("broken", '"broken" ('),
    ],
)
def test_check_says_when_the_toolchain_is_not_for_this_processor(
    capsys: pytest.CaptureFixture[str], work: Path, toolchain: str, found: str
) -> None:
    write_profile(work / "toolchains", "broken", "schema = 1\n")
    text = LINUX_BOARD.replace('"aarch64-linux-gnu"\n\n', f'"{toolchain}"\n\n', 1)
    path = write_profile(work / "boards", "mine", text)
    code, _, err = _run(capsys, "boards", "check", str(path))
    assert code == 3
    assert f"toolchain: found {found}" in err
    assert "expected a toolchain for aarch64" in err


def test_a_syntax_error_names_line_and_column(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    path = write_profile(work, "mine", 'schema = 1\nname = "mine\n')
    code, _, err = _run(capsys, "boards", "check", str(path))
    assert code == 3
    assert "mine.toml:2:" in err
    assert "line 2, column 13" in err


def test_checking_a_file_that_is_not_there_says_so(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    code, _, err = _run(capsys, "toolchains", "check", "nowhere.toml")
    assert code == 3
    assert "nowhere.toml" in err


def test_a_name_spelt_over_several_lines_is_copied(
    capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    text = LINUX_BOARD.replace('name = "{name}"', 'name = """\n{name}"""', 1)
    write_profile(work / "boards", "odd", text)
    code, _, _ = _run(capsys, "boards", "new", "mine", "--like", "odd")
    assert code == 0
    assert load_board("mine", work).name == "mine"
