"""`import edgekit`: the names that are promised, and that they cost nothing until used."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import edgekit

SOURCE = Path(str(edgekit.__file__))


def imported_for_types() -> dict[str, tuple[str, str]]:
    """The public names as a type checker sees them: name to module and attribute."""
    found = {}
    for statement in ast.parse(SOURCE.read_text()).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for node in statement.body:
                assert isinstance(node, ast.ImportFrom)
                for alias in node.names:
                    found[alias.asname or alias.name] = (str(node.module), alias.name)
    return found


def test_type_checkers_and_python_see_the_same_names() -> None:
    assert imported_for_types() == edgekit._HOMES  # type: ignore[attr-defined]
    assert set(edgekit.__all__) == {"__version__", *imported_for_types()}


@pytest.mark.parametrize("name", sorted(imported_for_types()))
def test_every_public_name_is_there(name: str) -> None:
    module, attribute = imported_for_types()[name]

    assert getattr(edgekit, name) is getattr(import_module(module), attribute)
    assert name in dir(edgekit)


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="buidl"):
        edgekit.buidl  # type: ignore[attr-defined]  # noqa: B018


def test_importing_edgekit_imports_nothing_else() -> None:
    script = "import json, sys, edgekit; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    loaded = json.loads(result.stdout)
    assert {name for name in loaded if name.startswith("edgekit")} == {
        "edgekit",
        "edgekit.version",
    }
    assert not {"numpy", "tvm", "click"} & set(loaded)
