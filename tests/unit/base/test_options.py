"""Options in messages: named as the caller knows them, and nowhere by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import click
import pytest
from support.source import PACKAGE, Module, modules

from edgekit.base.options import KEYWORDS, named_as_on_the_command_line, option, options_environment

_COMMANDS = re.compile(r"\b(edgekit|pip|systemctl|sudo|ssh-keygen|pyocd)\b[^;,`:()]*")
"""A command line in a message is the same for everyone."""
_OPTION = re.compile(r"(?<![\w-])--[a-z]")
_HOLE = "\0"


@pytest.mark.parametrize(
    ("name", "value", "on_the_command_line", "in_python"),
    [
        ("timeout", "", "--timeout", "timeout="),
        ("board", "rpi4", "--board rpi4", 'board="rpi4"'),
        ("runs", 100, "--runs 100", "runs=100"),
        ("again", "", "--again", "again=True"),
        ("no-verify", "", "--no-verify", "verify=False"),
        ("shape", "", "--shape", "shapes="),
        ("shape", "x=1,3", "--shape x=1,3", 'shapes={"x": (1,3)}'),
        ("constant", "k=5", "--constant k=5", 'constants={"k": 5}'),
        ("constant", "k", "--constant k", 'constants["k"]'),
        ("debug", "", "--debug", "--debug"),
    ],
)
def test_an_option_is_named_as_the_caller_knows_it(
    name: str, value: object, on_the_command_line: str, in_python: str
) -> None:
    with named_as_on_the_command_line():
        assert option(name, value) == on_the_command_line
        assert options_environment()
        with named_as_on_the_command_line(False):
            assert option(name, value) == in_python
            assert not options_environment()


def test_every_option_of_the_table_is_one_of_a_command() -> None:
    from edgekit.cli import root

    assert KEYWORDS.keys() <= set(_options(root))


def test_every_keyword_of_the_table_is_one_of_the_python_api() -> None:
    keywords = {
        node.arg if isinstance(node, ast.arg) else node.target.id
        for path in (PACKAGE / "api").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
    }

    assert {keyword.partition("=")[0] for keyword in KEYWORDS.values()} <= keywords


def test_the_library_names_no_option_by_hand() -> None:
    assert not [
        f"{module.path.relative_to(PACKAGE.parent)}:{line}: {text.replace(_HOLE, '…')}"
        for module in _library()
        for line, text in _texts(ast.parse(module.path.read_text(encoding="utf-8")))
        if _OPTION.search(_COMMANDS.sub("", text).lstrip(_HOLE)) and " " in text
        # A script, or the end of a command line whose beginning is elsewhere.
        if "\n" not in text.rstrip() and not re.match(f"{_HOLE}* --", text)
    ]


def test_options_are_named_when_a_message_is_made() -> None:
    """A module may be loaded before it is known who calls."""
    assert not [
        f"{module.path.relative_to(PACKAGE.parent)}:{node.lineno}"
        for module in _library()
        for node in _at_load(ast.parse(module.path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "option"
    ]


def _options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            yield name.lstrip("-")
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from _options(found)


def _library() -> list[Module]:
    return [
        module
        for name, module in modules().items()
        if not name.startswith("edgekit.cli") and name != "edgekit.base.options"
    ]


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """List the string literals but docstrings, those of an f-string as one, with holes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else _HOLE for p in child.values)
            yield child.lineno, "".join(map(str, parts))
            for part in child.values:
                if isinstance(part, ast.FormattedValue):
                    yield from _texts(part)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value
        else:
            yield from _texts(child)


def _at_load(node: ast.AST) -> Iterator[ast.AST]:
    """List the nodes that run when a module is loaded."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _at_load(child)
