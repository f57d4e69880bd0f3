"""Quotes untrusted text, with one function for each language that edgekit writes.

A name of a model, a layer, a file or a board may hold anything. Each function returns text that
means the name in its language, and can't end or extend the place it is put into.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from edgekit.base.wording import printable

_ADJACENT = re.compile(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)")
"""Places where a comment would begin or end, or a trigraph would begin."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#!|~&@$])")
_FORMULA = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The first characters of formulas. Spreadsheets take the wide East Asian forms too."""
_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRAY_SURROGATE = re.compile("[\ud800-\udfff]")


def one_line(text: str) -> str:
    """Return printable text on one line."""
    return " ".join(printable(text).split())


def c_comment(text: str) -> str:
    """Return ASCII that neither ends nor continues a comment of C, C++ or a makefile."""
    plain = "".join(c if 32 <= ord(c) < 127 else "?" for c in text).replace("\\", "/")
    return _ADJACENT.sub(" ", plain)


def c_string(text: str) -> str:
    """Return a string literal of C or C++ in UTF-8. A stray surrogate becomes `?`."""
    out = []
    for byte in text.encode("utf-8", "replace"):
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        out.append(chr(byte) if plain else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def html_text(text: str) -> str:
    """Quote text for HTML or SVG, between tags or inside a quoted attribute."""
    return html.escape(printable(text), quote=True)


def html_document(text: str) -> str:
    """Quote a whole document, as it is, for an attribute such as a frame's `srcdoc`."""
    return html.escape(text, quote=True)


def markdown_text(text: str) -> str:
    """Quote text for a line or a table's cell in Markdown. Every character is literal."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def markdown_code(text: str) -> str:
    """Return a code span in Markdown, also for a table."""
    line = one_line(text) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{space}{line}{space}{fence}".replace("|", "\\|")


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula. Numbers stay numbers."""
    if not isinstance(value, str):
        return value
    formula = value.lstrip().startswith(_FORMULA) or value[:1] in ("\t", "\r", "\n")
    return f"'{value}" if formula else value


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV that no spreadsheet takes for formulas."""
    stream = io.StringIO()
    csv.writer(stream).writerows([csv_cell(cell) for cell in row] for row in rows)
    return stream.getvalue()


def toml_string(text: str) -> str:
    """Return a basic string of TOML."""
    whole = _STRAY_SURROGATE.sub("\ufffd", text)
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Return a key of TOML, bare if possible."""
    return name if _BARE_KEY.fullmatch(name) else toml_string(name)


def systemd_path(path: str | PurePath) -> str:
    """Return a unit's value for a folder. No name in it ends or continues the line."""
    return f"{path}/".replace("%", "%%")


def systemd_word(text: str) -> str:
    """Return one word of a unit's setting that takes several, such as `Environment`."""
    escaped = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", _escaped(text))
    return f'"{escaped.replace("%", "%%")}"'


def systemd_command(words: Iterable[str]) -> str:
    """Return a command line for `ExecStart`."""
    return " ".join(systemd_word(word).replace("$", "$$") for word in words)


def cmake_string(text: str) -> str:
    """Return a quoted argument of CMake."""
    return '"' + _escaped(text).replace("$", "\\$") + '"'


def prometheus_label(text: str) -> str:
    """Return the value of a label in Prometheus' text format, with its quotes."""
    return f'"{_escaped(text)}"'


def ssh_config_word(text: str | PurePath) -> str:
    """Return a value in OpenSSH's configuration without any token."""
    return f'"{_escaped(str(text)).replace("%", "%%")}"'


def qemu_value(text: str | PurePath) -> str:
    """Quote a value inside one of QEMU's options, where a comma would begin the next."""
    return str(text).replace(",", ",,")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
