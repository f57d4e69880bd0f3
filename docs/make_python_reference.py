"""Writes docs/python-reference.md from the docstrings: python docs/make_python_reference.py"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edgekit
from edgekit.api import choice, keywords
from edgekit.base.events import SILENT

TARGET = Path(__file__).parent / "python-reference.md"

_INTRODUCTION = """\
# Python reference

Written by `python docs/make_python_reference.py`; a test compares it with the docstrings.
[python.md](python.md) shows how the parts belong together. Whatever stands here is in the package
`edgekit`, and is typed."""
_FIRST = ("Workspace", "DeviceHandle", "BundleSession", "Cancellation")
_KEYWORDS = (
    keywords.BindingKeywords,
    keywords.BuildKeywords,
    choice.DeviceKeywords,
    choice.TargetKeywords,
    keywords.OutcomeKeywords,
    choice.ResultKeywords,
    keywords.PlanKeywords,
    choice.DeployKeywords,
    keywords.FleetKeywords,
    choice.VerifyKeywords,
    keywords.ShowKeywords,
    choice.RunKeywords,
    choice.MeasureKeywords,
    keywords.LimitKeywords,
    choice.EvaluateKeywords,
    keywords.SearchKeywords,
    keywords.QuantizeKeywords,
    keywords.BenchKeywords,
    keywords.ToleranceKeywords,
)


def python_reference() -> str:
    lines = [_INTRODUCTION]
    for name in _FIRST:
        lines += ["", *_class(name, getattr(edgekit, name), level="##")]
    lines += [
        "",
        "## Keyword arguments",
        "",
        "`**how` and `**where` of the methods above take these.",
    ]
    for one in _KEYWORDS:
        lines += ["", *_class(one.__name__, one, level="###")]
    rest = [
        name for name in sorted(edgekit.__all__) if name not in (*_FIRST, "__version__", "Event")
    ]
    found = {name: getattr(edgekit, name) for name in rest}
    lines += ["", "## Reports and data"]
    for name, value in found.items():
        if inspect.isclass(value):
            lines += ["", *_class(name, value, level="###")]
    lines += ["", "## Functions"]
    for name, value in found.items():
        if not inspect.isclass(value):
            lines += ["", f"### {name}", "", *_signature(name, value), "", *_doc(value)]
    return "\n".join(lines) + "\n"


def _class(name: str, cls: Any, *, level: str) -> list[str]:
    lines = [f"{level} {name}", "", *_doc(cls)]
    fields = list(_fields(cls))
    if fields:
        lines += ["", "| field | type | |", "|---|---|---|"]
        lines += [f"| `{key}` | `{_cell(kind)}` | {_cell(text)} |" for key, kind, text in fields]
    for key, member in _members(cls):
        if isinstance(member, property):
            lines += ["", f"{level}# {name}.{key}", "", *_doc(member)]
        else:
            lines += ["", f"{level}# {name}.{key}", "", *_signature(key, member), "", *_doc(member)]
    return lines


def _fields(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the annotated fields of a class and its bases, with the docstrings below them."""
    for base in reversed((cls,) if typing.is_typeddict(cls) else cls.__mro__):
        if not base.__module__.startswith("edgekit"):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(node, ast.ClassDef)
        for statement, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                key = statement.target.id
                if not key.startswith("_") and "internal" not in ast.unparse(statement).lower():
                    yield key, ast.unparse(statement.annotation), _text(following)


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def _members(cls: Any) -> Iterator[tuple[str, Any]]:
    if typing.is_typeddict(cls):
        return
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("edgekit."):
            continue
        for key, member in vars(base).items():
            is_member = isinstance(member, property) or inspect.isfunction(member)
            if is_member and not key.startswith("_") and key not in seen and member.__doc__:
                seen.add(key)
                yield key, member


def _signature(name: str, function: Any) -> list[str]:
    call = inspect.signature(function)
    kept = [each for each in call.parameters.values() if each.name not in ("self", "cls")]
    parameters = list(_parameters(kept))
    returned = "" if call.return_annotation is call.empty else f" -> {call.return_annotation}"
    text = f"{name}({', '.join(parameters)}){returned}"
    if len(text) > 96:
        inner = "".join(f"    {each},\n" for each in parameters)
        text = f"{name}(\n{inner}){returned}"
    return ["```text", text, "```"]


def _parameters(kept: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for each in kept:
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "SILENT" if each.default is SILENT else repr(each.default)
        value = "" if each.default is each.empty else f" = {default}"
        yield f"{stars}{each.name}: {each.annotation}{value}"


def _doc(value: Any) -> list[str]:
    text = inspect.getdoc(value) or ""
    return ["" if text.startswith(f"{getattr(value, '__name__', '')}(") else text]


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


if __name__ == "__main__":
    TARGET.write_text(python_reference(), encoding="utf-8")
