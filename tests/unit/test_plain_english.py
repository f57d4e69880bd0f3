"""The worst habits of the prose, which a script can find: code, messages and docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.source import ROOT, modules

PREPOSITIONS = (
    *("among", "at", "between", "by", "for", "from", "in", "of", "on", "to", "until", "with"),
    "without",
)
RIDDLES = re.compile(r"\b(nobody|over there|what is to be had|whoever)\b", re.IGNORECASE)
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")


NATIVE = tuple(path for end in ("cc", "h", "c") for path in (ROOT / "edgekit").rglob(f"*.{end}"))


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the place of each docstring and its first word; fields and constants have some too."""
    trees = [(module.path, module.nodes) for module in modules().values()]
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")):
        trees.append((path, tuple(ast.walk(ast.parse(path.read_text("utf-8"))))))
    for path, nodes in trees:
        for node in nodes:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = node.value.value
                if isinstance(text, str) and text.split():
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text.split()[0]


def test_no_docstring_begins_with_a_preposition() -> None:
    found = list(docstrings())
    puzzling = [f"{where}: {word}" for where, word in found if word.lower() in PREPOSITIONS]

    assert len(found) > 3000
    assert not puzzling, "a function's docstring begins with a verb, a field's is a noun phrase"


def test_no_sentence_of_the_code_is_a_riddle() -> None:
    riddles = [
        f"{module.path.relative_to(ROOT)}:{number}: {found[0]}"
        for module in modules().values()
        for number, line in enumerate(module.path.read_text("utf-8").splitlines(), 1)
        if (found := RIDDLES.search(line))
    ]

    assert not riddles, "say who: host, board, device, remote, caller, user"


@pytest.mark.parametrize("page", (*PAGES, *NATIVE), ids=lambda page: page.name)
def test_no_sentence_of_the_docs_or_of_native_code_is_a_riddle(page: object) -> None:
    path = ROOT / str(page)
    riddles = [
        f"{path.name}:{number}: {found[0]}"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (found := RIDDLES.search(line))
    ]

    assert not riddles
