"""The scripts and styles of pages. They are shipped: no page asks a network for anything."""

from __future__ import annotations

import re
from functools import cache

from edgekit.base.paths import PACKAGE

_FOLDER = PACKAGE / "pictures" / "web"
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
_IMPORT = re.compile(r"^import (\{.*\}) from 'vega-util';$", re.MULTILINE)
_EXPORT = re.compile(r"^export \{ expression as (\w+) \};$", re.MULTILINE)


def styles() -> str:
    return _read("pictures.css")


@cache
def scripts() -> tuple[str, ...]:
    """Return the scripts in their order: Vega with its licence, Vega-Lite, Vega's interpreter of
    expressions, and what draws with them."""
    return (
        f"/*\n{_read('LICENSE')}*/\n{_read('vega.min.js')}",
        _read("vega-lite.min.js"),
        _interpreter(),
        _read("charts.js"),
        _read("graph.js"),
    )


def _interpreter() -> str:
    """Return the interpreter, which is a module, as a plain script.

    It replaces `new Function`, which the pages' policy forbids.
    """
    text = _IMPORT.sub(r"const \1 = vega;", _read("vega-interpreter.js"))
    text = _EXPORT.sub(r"window.vegaInterpreter = { \1: expression };", text)
    return f"(() => {{\n{text}\n}})();"


def _read(name: str) -> str:
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return _MAP.sub("", text)
