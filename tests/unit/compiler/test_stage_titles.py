"""What a person sees of the work: all stages are named in one form."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.source import modules


def titles() -> Iterator[str]:
    for module in modules().values():
        for node in module.nodes:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "stage"
            ):
                yield ast.unparse(node.args[0]).removeprefix("f").strip("\"'")


def test_a_stage_says_what_is_to_be_done_in_the_imperative() -> None:
    """A title follows a mark or stands in a line, so it begins in lower case, with a verb: the
    others say `compile`, not `compiling`."""
    found = list(titles())
    first_words = [title.split()[0] for title in found]
    wrong = [
        title
        for title, first in zip(found, first_words, strict=True)
        if not (first.islower() and first.isalpha()) or first.endswith("ing")
    ]

    assert len(found) > 50
    assert not wrong
