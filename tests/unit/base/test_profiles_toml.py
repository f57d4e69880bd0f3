from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.toml_source import SIZE_LIMIT, TomlError, key_lines, parse_toml, read_toml

HERE = Path("x.toml")
TRICKY = '''\
# a comment with [brackets] = "and" = signs
title = "a = b # not a comment"   # a comment
'quoted key' = 1
a.b . c = 2
several = [
  "x", # ]
  { y = "]" },
]
text = """
inner = 1
[not.a.table]
still text: \\""" and ""a""
"""
literal = \'\'\'
inner = 2\'\'\'

[table.below]
key = 1
[[array]]
key = 1
[array.child]
deep = 1
[[array]]
key = 2
'''


def test_lines_are_those_a_person_counts() -> None:
    lines = key_lines(TRICKY)
    numbered = TRICKY.split("\n")
    expected = {
        ("title",): "title",
        ("quoted key",): "'quoted key'",
        ("a", "b", "c"): "a.b . c",
        ("several",): "several",
        ("text",): "text",
        ("literal",): "literal",
        ("table", "below"): "[table.below]",
        ("table", "below", "key"): "key = 1",
        ("array", 0, "key"): "key = 1",
        ("array", 0, "child", "deep"): "deep = 1",
        ("array", 1, "key"): "key = 2",
    }
    for key, start in expected.items():
        assert numbered[lines[key] - 1].startswith(start), key
    assert not any("inner" in key for key in lines)


def test_a_missing_key_is_reported_where_its_table_begins() -> None:
    source = parse_toml(HERE, TRICKY.encode())
    assert source.line_of(("table", "below", "nowhere")) == source.lines[("table", "below")]
    assert source.line_of(("nowhere",)) == 1


def test_keys_nested_without_end_cost_no_memory() -> None:
    path = ".".join(["a"] * (SIZE_LIMIT // 4))
    for text in (f"{path} = 1", f"[{path}]"):
        assert len(key_lines(text)) < 10


_values = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(alphabet="a\"'\\\n=#[]{}.é", max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[\n" + "".join(f"{_toml(item)},\n" for item in value) + "]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"""\n{text}"""' if "\n" in text else f'"{text}"'


@given(st.lists(st.tuples(st.sampled_from(["", "\n", "# [x] = '\n"]), _values), max_size=6))
def test_every_key_is_found_on_its_own_line(items: list[tuple[str, object]]) -> None:
    text, expected = "", {}
    for number, (before, value) in enumerate(items):
        text += before
        expected[(f"key{number}",)] = text.count("\n") + 1
        text += f"key{number} = {_toml(value)}\n"
    assert tomli.loads(text).keys() == {f"key{number}" for number in range(len(items))}
    assert key_lines(text) == expected


@given(st.text(alphabet="ab.=[]{}\"'#\\\n ,1", max_size=60))
def test_every_line_of_any_toml_is_in_the_file(text: str) -> None:
    try:
        source = parse_toml(HERE, text.encode())
    except TomlError:
        return
    assert all(1 <= line <= text.count("\n") + 1 for line in source.lines.values())
    assert {key[0] for key in source.lines} == set(source.table)


@given(st.binary(max_size=200))
def test_any_bytes_are_toml_or_a_toml_error(data: bytes) -> None:
    try:
        parse_toml(HERE, data)
    except TomlError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a = 1\nb = = 2\n", "line 2, column 5"),
        (b"a = 1\nb = '\xff'\n", "line 2, column 6"),
        (b"a = 1\nb =", "line 2, column 4"),
        (b"a = " + b"[" * 5000, "nest|recursion"),
        (b"a = " + b"9" * 5000, "digits"),
        (b"#" * (SIZE_LIMIT + 1), "larger than 64 KiB"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, said: str) -> None:
    with pytest.raises(TomlError, match=said):
        parse_toml(HERE, data)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    import os

    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(TomlError, match="not a regular file"):
            read_toml(path)
