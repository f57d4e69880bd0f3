"""Edits of a user's TOML file change one table and keep everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import ProjectError
from edgekit.project.user_file import edit_table

COMMENTED = """\
# my devices
schema = 1  # of edgekit

# in the kitchen
[devices.pi]
board = 'rpi4'  # with a fan
host = "pi"

# on the desk
[devices.'desk']  # slow
host = "desk"
board = "rpi5"
"""
LAYOUTS = [
    "",
    "schema = 1",
    COMMENTED,
    COMMENTED.replace("\n", "\r\n"),
    'schema = 1\ndevices = { pi = { board = "a" }, "b" = { board = "c" } }\n',
    'schema = 1\n[devices]\npi.board = "a"\npi.host = "b"\nc.board = "d"\n',
    'schema = 1\ndevices.pi.board = "a"\ndevices.c.board = "d"\n',
    '[devices.pi]\nboard = "a"\n[other]\nx = [\n1,\n]\n[devices.c]\nboard = "d"\n',
    '[devices."pi"]\nboard = "[devices.pi]"\n[devices]\nschema = {x = 1}\n',
    "[[devices]]\nx = 1\n",
    "devices = 5\n",
]
LAYOUTS_AS_WRITTEN = 5
"""The first layouts can be edited in any case; the others are edited or left alone."""
VALUE = st.none() | st.integers(0, 9) | st.text(max_size=5).filter(str.isprintable)
VALUES = st.fixed_dictionaries(
    {"board": st.sampled_from(["rpi4", "local"])}, optional={"host": VALUE, "key": VALUE}
)


def edited(file: Path, text: str, name: str, values: dict[str, str | int | None] | None) -> str:
    file.write_text(text, newline="")
    edit_table(file, text, ("devices", name), values)
    return file.read_bytes().decode()


@given(st.sampled_from(LAYOUTS), st.sampled_from(["pi", "new"]), st.none() | VALUES)
def test_one_table_changes_and_no_other(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    name: str,
    values: dict[str, str | int | None] | None,
) -> None:
    file = tmp_path_factory.getbasetemp() / "devices.toml"
    before = tomli.loads(text.replace("\r\n", "\n"))
    try:
        after = tomli.loads(edited(file, text, name, values).replace("\r\n", "\n"))
    except ProjectError:
        assert file.read_bytes().decode() == text
        usual = LAYOUTS.index(text) < LAYOUTS_AS_WRITTEN and name in before.get("devices", {})
        assert not usual
        return
    expected = dict(before.get("devices", {}))
    expected.pop(name, None)
    found = dict(after.get("devices", {}))
    table = found.pop(name, None)

    assert found == expected
    wanted = {key: value for key, value in (values or {}).items() if value is not None}
    assert table == (None if values is None else wanted)
    assert {**after, "devices": None} == {**before, "devices": None}


def test_a_changed_table_keeps_its_comments_and_its_place(tmp_path: Path) -> None:
    after = edited(tmp_path / "d.toml", COMMENTED, "pi", {"board": "rpi5", "host": None})

    assert after == COMMENTED.replace("'rpi4'", '"rpi5"').replace('host = "pi"\n', "")


def test_a_removed_table_takes_its_own_comments_and_no_others(tmp_path: Path) -> None:
    above, pi, desk = COMMENTED.partition("# in the kitchen")[0], 0, COMMENTED.index("# on the")

    assert edited(tmp_path / "d.toml", COMMENTED, "pi", None) == above + COMMENTED[desk:]
    assert edited(tmp_path / "d.toml", COMMENTED, "desk", None) == COMMENTED[pi : desk - 1]


def test_what_cannot_be_edited_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    text = "devices = 5  # mine\n"
    file.write_text(text)

    with pytest.raises(ProjectError, match="can't edit"):
        edit_table(file, text, ("devices", "pi"), {"board": "rpi4"})

    assert file.read_text() == text
