"""Rules of style that the source can be asked about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from support.source import modules

from edgekit.base import errors

TESTS = Path(__file__).parents[1]
ERRORS = {name for name in dir(errors) if name.endswith("Error")} | {"RefusedError"}
NAMES = (
    "PyTorch",
    "Debian's",
    "ONNX",
    "TVM",
    "Scan",
    "Loop",
    "LiteRT",
    "TorchScript",
    "CUDA",
    "Keras",
    "TensorFlow",
)
"""What is written with a capital wherever it stands."""


def pieces(node: ast.expr) -> tuple[str, str]:
    """How a text begins and ends; empty where a value stands there."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    first, last = (
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""
        for part in (parts[0], parts[-1])
    )
    return first, last


def texts() -> Iterator[tuple[str, str, str]]:
    for module in modules().values():
        for node in module.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id not in ERRORS:
                continue
            hints = [word.value for word in node.keywords if word.arg in ("message", "hint")]
            for text in (*node.args, *hints):
                yield f"{module.name}:{node.lineno}", *pieces(text)


def test_messages_and_hints_begin_small_and_end_without_a_full_stop() -> None:
    found = list(texts())
    capital = [
        f"{where}: {first}"
        for where, first, _ in found
        if first[:1].isupper() and not first.startswith(NAMES) and not first[1:2].isupper()
    ]
    stopped = [f"{where}: {last}" for where, _, last in found if last.endswith((".", "!"))]

    assert len(found) > 200
    assert not capital
    assert not stopped


def test_nothing_but_support_needs_skips_a_test() -> None:
    """A skip raised by a helper may end up in a callback of TVM, where it is an error."""
    skips = {"skip", "skipif", "importorskip"}
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != TESTS / "support" / "needs.py"
        if any(f".{skip}" in path.read_text(encoding="utf-8") for skip in skips)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in skips
        and ast.unparse(node.value) in ("pytest", "pytest.mark", "unittest")
    ]

    assert not found, "mark the test with needs(...) of tests/support/needs.py"
