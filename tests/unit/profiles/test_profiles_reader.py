from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import machine_without_profiles, write_profile

from edgekit.base.errors import ProfileError
from edgekit.base.toml_source import parse_toml
from edgekit.profiles.reader import (
    Problem,
    TableReader,
    find_profile,
    list_profiles,
    load_profile,
    profile_names,
    shadowed_profiles,
)

HERE = Path("x.toml")


def _reader(text: str) -> TableReader:
    source = parse_toml(HERE, text.encode())
    return TableReader(source, source.table, (), [])


def _only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, problems
    return problems[0]


def test_a_problem_is_one_sentence_with_all_that_matters() -> None:
    reader = _reader('first = 1\ncolour = "gren"\n')
    reader.choice("colour", ("red", "green"))
    assert str(_only(reader.problems)) == (
        'x.toml:2: colour: found "gren", expected one of "red", "green"; did you mean green?'
    )


def test_a_misspelt_key_is_told_the_right_one() -> None:
    reader = _reader('[cpu]\nname = "x"\nfeatuers = []\n')
    table = reader.table("cpu")
    table.text("name")
    table.choices("features", ("neon",))
    table.finish()
    unknown = next(problem for problem in reader.problems if problem.line == 3)
    assert (unknown.key, unknown.nearest) == ("cpu.featuers", "features")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("true", "true"),
        ("1.5", "1.5"),
        ('"4"', '"4"'),
        ("[]", "a list"),
        ("17", "17"),
        ("{}", "a table"),
    ],
)
def test_a_number_out_of_range_or_of_another_type_is_a_problem(value: str, found: str) -> None:
    reader = _reader(f"cores = {value}")
    assert reader.integer("cores", 1, 16) == 1
    assert _only(reader.problems).found == found


@pytest.mark.parametrize("value", ["4", '"4 GB"', '"0 B"', "[]", '"lots"'])
def test_a_size_that_is_none_is_a_problem(value: str) -> None:
    reader = _reader(f"ram = {value}")
    assert reader.size("ram") == 0
    assert '"320 KiB"' in _only(reader.problems).expected


def test_lists_keep_the_good_words_and_report_each_bad_one() -> None:
    reader = _reader('words = ["a", "b", "a", 3, "c"]')
    assert reader.choices("words", ("a", "b")) == ("a", "b")
    assert [problem.found for problem in reader.problems] == ['"a" twice', "3", '"c"']


def test_text_from_a_file_cannot_steer_the_terminal() -> None:
    reader = _reader(r'title = "\u001b[2Jgone"')
    reader.text("title")
    assert "\x1b" not in str(_only(reader.problems))


def test_a_long_value_is_cut_in_the_message() -> None:
    reader = _reader(f'title = "{"x" * 5000}"')
    reader.text("title")
    assert len(str(_only(reader.problems))) < 250


def test_a_list_of_thousands_is_one_problem() -> None:
    reader = _reader(f"words = [{', '.join(['1'] * 5000)}]")
    assert reader.choices("words", ("a", "b")) == ()
    assert _only(reader.problems).found == "5000 items"


def test_thousands_of_unknown_keys_do_not_bury_the_reader() -> None:
    reader = _reader("\n".join(f"k{number} = 1" for number in range(5000)))
    reader.finish()
    assert len(reader.problems) == 100


_scalars = st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.datetimes()
_tables = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "name"]), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.sampled_from(["a", "b", "name"]), _tables))
def test_every_getter_gives_its_type_whatever_is_there(table: dict[str, object]) -> None:
    source = parse_toml(HERE, b"")
    for key in ("a", "b", "name"):
        problems: list[Problem] = []
        reader = TableReader(source, table, (), problems)
        assert isinstance(reader.text(key), str)
        assert isinstance(reader.matching(key, re.compile("x"), "x"), str)
        assert isinstance(reader.choice(key, ("x", "y")), str)
        assert all(word in ("x", "y") for word in reader.choices(key, ("x", "y")))
        assert all(word == "x" for word in reader.texts(key, re.compile("x"), "x"))
        assert 1 <= reader.integer(key, 1, 5) <= 5
        assert reader.size(key) >= 0
        assert isinstance(reader.table(key), TableReader)
        assert all(isinstance(one, TableReader) for one in reader.tables(key))
        reader.finish()
        assert all(str(problem).isprintable() for problem in problems)
        assert problems


def _title(reader: TableReader, path: Path) -> str:
    return reader.text("title")


def test_the_first_folder_wins_and_the_rest_are_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    monkeypatch.setenv("EDGEKIT_BOARD_PATH", str(tmp_path / "team"))
    text = 'schema = 1\nname = "{name}"\ntitle = "{title}"\n'
    team = write_profile(tmp_path / "team", "rpi4", text, title="the team's")
    assert find_profile("boards", "rpi4") == team
    own = write_profile(work / "boards", "rpi4", text, title="mine")
    assert find_profile("boards", "rpi4", work) == own
    assert load_profile(own, "boards", _title) == "mine"
    hidden = shadowed_profiles("boards", own, work)
    assert hidden[0] == team
    assert [path.name for path in hidden] == ["rpi4.toml", "rpi4.toml"]


def test_one_broken_profile_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    write_profile(work / "boards", "broken", "this is = = no TOML")
    entries = {entry.name: entry for entry in list_profiles("boards", lambda r, p: None, work)}
    assert "line 1" in (entries["broken"].trouble or "")
    assert entries["broken"].profile is None
    assert len(entries) > 10


@pytest.mark.parametrize(
    "name", ["../rpi4", "/etc/passwd", "rpi4.toml", "RPI4", "", "a/b", "rpi4\x00", "-x", "x" * 64]
)
def test_a_name_never_leads_out_of_the_folders(name: str) -> None:
    with pytest.raises(ProfileError, match="no board called"):
        find_profile("boards", name)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ProfileError) as caught:
        find_profile("boards", "rpi44")
    assert "did you mean rpi4?" in (caught.value.hint or "")


def test_files_whose_names_are_no_names_are_not_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    before = profile_names("boards")
    for name in ("Loud", "under_score", ".hidden", "-dash"):
        write_profile(work / "boards", name, "")
    assert profile_names("boards") == before


def test_a_profile_must_be_called_what_its_file_is_called(tmp_path: Path) -> None:
    path = write_profile(tmp_path, "one", 'schema = 1\nname = "two"\ntitle = "x"')
    with pytest.raises(ProfileError, match='found "two", expected "one"'):
        load_profile(path, "boards", _title)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = write_profile(tmp_path, "one", 'schema = 2\nname = "one"\ntitle = "x"')
    with pytest.raises(ProfileError, match=r"one\.toml:1: schema: found 2, expected 1"):
        load_profile(path, "boards", _title)
