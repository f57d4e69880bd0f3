"""What a person sees of the work: all stages are named in one form."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgekit

PACKAGE = Path(edgekit.__file__).parent


def titles() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "stage"
            ):
                yield ast.unparse(node.args[0]).removeprefix("f").strip("\"'")


@pytest.mark.parametrize("title", list(titles()))
def test_a_stage_says_what_is_to_be_done_in_the_imperative(title: str) -> None:
    first = title.split()[0]

    assert first.islower(), f"{title}: it follows a mark or stands in a line: lower case"
    assert first.isalpha(), f"{title}: it begins with a verb"
    assert not first.endswith("ing"), f"{title}: the others say 'compile', not 'compiling'"
