"""JUnit XML: whatever a name or a message holds, the file parses, and says what happened."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import DeviceError, StorageError
from edgekit.base.junit import Case, as_junit, case_of_error, write_junit

CASES = [
    Case(("net", "kitchen.local"), "zeros", lines=("y: max error 0", "z: max error 1")),
    Case(("net", "kitchen.local"), "random", "failed", "y is off", ("y: 3 of 8",), "Wrong"),
    Case(("net", "kitchen.local"), "nan", "left out", "the oracle refuses NaN"),
    case_of_error(("net", "cellar"), "verify", DeviceError("it is gone", hint="look for it")),
]


def test_each_outcome_is_an_element_that_ci_systems_know() -> None:
    root = ElementTree.fromstring(as_junit("edgekit verify net", CASES))

    assert root.tag == "testsuites"
    (suite,) = root
    counts = {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    assert suite.attrib == {"name": "edgekit verify net", **counts}
    assert root.attrib == counts
    passed, failed, left_out, broken = suite
    assert passed.attrib == {"classname": "net.kitchen_local", "name": "zeros"}
    assert passed.findtext("system-out") == "y: max error 0\nz: max error 1"
    failure = failed.find("failure")
    assert failure is not None
    assert failure.attrib == {"message": "y is off", "type": "Wrong"}
    assert failure.text == "y is off\ny: 3 of 8"
    skipped = left_out.find("skipped")
    assert skipped is not None
    assert skipped.attrib == {"message": "the oracle refuses NaN"}
    error = broken.find("error")
    assert error is not None
    assert error.attrib == {"message": "it is gone", "type": "DeviceError"}
    assert error.text == "it is gone\nhint: look for it"


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_parses(name: str, message: str) -> None:
    case = Case((name, name), name, "failed", message, (message,))
    text = as_junit(name, [case, Case((name,), name, lines=(message,))])

    root = ElementTree.fromstring(text.encode("utf-8"))

    assert len(root.findall(".//testcase")) == 2


@pytest.mark.parametrize("told", ["]]>", "</failure>", "&amp;", "\x00\x1b[31m", "\ud800", "\ufffe"])
def test_hostile_text_stays_text(told: str) -> None:
    text = as_junit("s", [Case(("g",), "n", "failed", told, (told,))])

    (failure,) = ElementTree.fromstring(text.encode("utf-8")).findall(".//failure")
    assert len(failure) == 0
    if told.isprintable():
        assert failure.text == f"{told}\n{told}"


def test_the_file_is_utf_8_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "out.xml"

    write_junit(path, "größe", CASES)

    assert path.read_bytes().startswith(b"<?xml version='1.0' encoding='utf-8'?>\n")
    suite = ElementTree.parse(path).find("testsuite")
    assert suite is not None
    assert suite.get("name") == "größe"


def test_a_file_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="JUnit"):
        write_junit(tmp_path / "file" / "out.xml", "s", CASES)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
