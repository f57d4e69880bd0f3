"""edgekit's own source, as the layout tests read it: modules and what each one imports."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "edgekit"


@dataclass(frozen=True)
class Import:
    module: str
    """`edgekit.base.files`, or the first word of anything else: `numpy`."""
    line: int
    at_start: bool
    """Runs when the module is imported: in no function, and not for type checkers alone."""
    for_types: bool


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    nodes: tuple[ast.AST, ...]
    """All nodes of its syntax tree, the module's own first."""
    imports: tuple[Import, ...]


@lru_cache(maxsize=1)
def modules() -> dict[str, Module]:
    """Read every module of edgekit; returns them by name. It takes seconds: call it in a test.

    The collector of garbage would go through half a million nodes over and over while they are
    read, and in each later test.
    """
    gc.disable()
    try:
        return _read_modules()
    finally:
        gc.freeze()
        gc.enable()


def _read_modules() -> dict[str, Module]:
    paths = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    found = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        imports = tuple(
            Import(target, line, at_start, for_types)
            for node, at_start, for_types in _import_nodes(tree.body, True, False)
            for target, line in _targets(node, paths)
        )
        found[name] = Module(name, path, tuple(ast.walk(tree)), imports)
    return found


def is_third_party(module: str) -> bool:
    first = module.split(".")[0]
    return first != "edgekit" and first not in sys.stdlib_module_names


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _import_nodes(
    body: list[ast.stmt], at_start: bool, for_types: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_start and not for_types, for_types
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _import_nodes(node.body, False, for_types)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _import_nodes(node.body, at_start, True)
            yield from _import_nodes(node.orelse, at_start, for_types)
        else:
            for block in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner = getattr(node, block, [])
                yield from _import_nodes(inner, at_start, for_types)


def _targets(
    node: ast.Import | ast.ImportFrom, known: dict[str, Path]
) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, "edgekit imports itself by full names"
        base = node.module or ""
        inner = [f"{base}.{alias.name}" for alias in node.names]
        names = [name if name in known else base for name in inner]
    for name in dict.fromkeys(names):
        yield (name if name.split(".")[0] == "edgekit" else name.split(".")[0]), node.lineno
