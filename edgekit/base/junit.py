"""Writes outcomes as JUnit XML, which CI systems show beside a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from edgekit.base.errors import EdgekitError, ErrorReport
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.quoting import one_line
from edgekit.base.wording import printable

Outcome = Literal["passed", "failed", "broken", "left out"]
_ELEMENTS = {"failed": "failure", "broken": "error", "left out": "skipped"}


@dataclass(frozen=True)
class Case:
    """One outcome. It has no duration: the time of a test is not that of a board."""

    group: tuple[str, ...]
    """The names of the class, from the outside: CI systems fold by them."""
    name: str
    outcome: Outcome = "passed"
    """Broken is what could not be judged."""
    message: str = ""
    """One sentence, shown in lists."""
    lines: tuple[str, ...] = ()
    """Details: of a failure below the message, of anything else as the case's output."""
    kind: str = ""
    """The name of the error's class."""


def case_of_error(group: tuple[str, ...], name: str, error: EdgekitError | ErrorReport) -> Case:
    """Return the case of something that could not be judged."""
    told = error.report() if isinstance(error, EdgekitError) else error
    hint = (f"hint: {told.hint}",) if told.hint else ()
    return Case(group, name, "broken", told.message, (*told.details, *hint), told.type)


def as_junit(suite: str, cases: Sequence[Case]) -> str:
    counts = {
        "tests": str(len(cases)),
        "failures": _count(cases, "failed"),
        "errors": _count(cases, "broken"),
        "skipped": _count(cases, "left out"),
    }
    root = ElementTree.Element("testsuites", counts)
    found = ElementTree.SubElement(root, "testsuite", {"name": one_line(suite), **counts})
    for case in cases:
        group = ".".join(one_line(name).replace(".", "_") for name in case.group)
        test = ElementTree.SubElement(
            found, "testcase", {"classname": group, "name": one_line(case.name)}
        )
        _add_outcome(test, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=False) + "\n"


def write_junit(path: Path, suite: str, cases: Sequence[Case]) -> None:
    with storage_errors("write the JUnit report", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"<?xml version='1.0' encoding='utf-8'?>\n{as_junit(suite, cases)}")


def _add_outcome(test: ElementTree.Element, case: Case) -> None:
    if case.outcome == "passed":
        if case.lines:
            ElementTree.SubElement(test, "system-out").text = _text(case.lines)
        return
    attributes = {"message": one_line(case.message)}
    if case.kind:
        attributes["type"] = case.kind
    element = ElementTree.SubElement(test, _ELEMENTS[case.outcome], attributes)
    if case.outcome != "left out":
        element.text = _text((case.message, *case.lines))  # some show the text, some the message


def _text(lines: Sequence[str]) -> str:
    return printable("\n".join(lines))


def _count(cases: Sequence[Case], outcome: str) -> str:
    return str(sum(case.outcome == outcome for case in cases))
