"""JUnit files as CI systems read them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree


def outcomes(path: Path) -> dict[tuple[str, str], str]:
    """Return what became of each case, by class and name; the counts are checked."""
    root = ElementTree.parse(path).getroot()
    (suite,) = root
    found = {(case.attrib["classname"], case.attrib["name"]): _outcome(case) for case in suite}
    told = [suite.attrib[name] for name in ("tests", "failures", "errors", "skipped")]
    outcomes = list(found.values())
    assert told == [
        str(len(suite)),
        *(str(outcomes.count(name)) for name in ("failure", "error", "skipped")),
    ]
    return found


def told(path: Path) -> list[str]:
    """Return the texts of all failures and errors."""
    root = ElementTree.parse(path).getroot()
    return [e.text or "" for tag in ("failure", "error") for e in root.iter(tag)]


def _outcome(case: ElementTree.Element) -> str:
    tags = {element.tag for element in case} - {"system-out", "properties"}
    return tags.pop() if tags else "passed"
