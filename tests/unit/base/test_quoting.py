"""A name from outside stays a name in every language that edgekit writes."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import tomli
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.source import modules

from edgekit.base import quoting
from edgekit.base.wording import printable

WORDS = st.text() | st.text(alphabet="*/\\?\"'<>&|`=+-@%$#[]{}();\n\r\t,_~! \x00\x7fa")
"""Any text, and text made of what means something in one of the languages."""
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@given(WORDS)
@example("*\\")
@example("/\\*")
@example("??/")
def test_a_comment_of_c_is_neither_ended_nor_begun_nor_continued(text: str) -> None:
    made = quoting.c_comment(text)
    assert made.isascii()
    assert made.isprintable()
    assert not any(mark in made for mark in ("*/", "/*", "\\", "??"))


@given(WORDS)
def test_a_string_of_c_holds_the_bytes_of_the_text(text: str) -> None:
    made = quoting.c_string(text)
    assert made.isascii()
    inside = made[1:-1]
    read = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), inside)
    assert read.encode("latin-1") == text.encode()
    assert '"' not in inside


@given(WORDS)
def test_html_shows_the_text_and_has_no_tag_of_its_own(text: str) -> None:
    class Reader(HTMLParser):
        shown, tags = "", 0

        def handle_data(self, data: str) -> None:
            self.shown += data

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags += 1
            self.title = attrs[0][1]

    reader = Reader()
    made = quoting.html_text(text)
    reader.feed(f"<b title='{made}'>{made}</b>")
    reader.close()
    assert (reader.shown, reader.tags, reader.title) == (printable(text), 1, printable(text))


@given(WORDS)
def test_svg_stays_xml(text: str) -> None:
    made = ElementTree.fromstring(
        f'<svg><title a="{quoting.html_text(text)}">{quoting.html_text(text)}</title></svg>'
    )
    assert made[0].text == (printable(text) or None)
    assert len(made) == 1


@given(WORDS)
def test_a_cell_in_markdown_is_one_cell_of_plain_text(text: str) -> None:
    line = quoting.one_line(text)
    made = MARKDOWN.parse(f"| a | b |\n|---|---|\n| {quoting.markdown_text(text)} | end |\n")
    first, last = [token for token in made if token.type == "inline"][2:]
    children = first.children or []
    assert {child.type for child in children} <= {"text", "text_special"}
    assert "".join(child.content for child in children) == line
    assert last.content == "end"


@given(WORDS)
def test_a_heading_in_markdown_is_one_heading(text: str) -> None:
    made = MARKDOWN.parse(f"# {quoting.markdown_text(text)} in C\n\nnext\n")
    kinds = [token.type for token in made if token.type.endswith("_open")]
    assert kinds == ["heading_open", "paragraph_open"]


@given(WORDS)
@example("a|b`c``")
def test_code_in_markdown_is_one_span_also_in_a_table(text: str) -> None:
    line = quoting.one_line(text) or " "
    cell = quoting.markdown_code(text)
    made = MARKDOWN.parse(f"| a | b |\n|---|---|\n| {cell} | end |\n")
    first, last = [token for token in made if token.type == "inline"][2:]
    (span,) = first.children or []
    assert span.type == "code_inline"
    assert span.content.strip() == line.strip()
    assert last.content == "end"


@given(WORDS)
def test_a_cell_in_csv_is_no_formula_and_keeps_its_text(text: str) -> None:
    stream = io.StringIO()
    csv.writer(stream).writerow([quoting.csv_cell(text), "end"])
    stream.seek(0)
    ((cell, last),) = csv.reader(stream)
    assert cell.removeprefix("'") == text.removeprefix("'") or cell == f"'{text}"
    assert cell.lstrip()[:1] not in ("=", "+", "-", "@", "|", "%")
    assert last == "end"


@pytest.mark.parametrize("mark", "=+-@\uff1d\uff0b\uff0d\uff20")
def test_a_formula_in_the_wide_forms_of_its_marks_is_none(mark: str) -> None:
    assert quoting.csv_cell(f"{mark}1+1") == f"'{mark}1+1"


def test_numbers_in_csv_stay_numbers() -> None:
    assert quoting.csv_cell(-1.5) == -1.5


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",))), WORDS)
def test_toml_reads_what_was_written(key: str, value: str) -> None:
    text = f"{quoting.toml_key(key)} = {quoting.toml_string(value)}\nlast = true\n"
    assert tomli.loads(text) == {key: value, "last": True}


def test_a_stray_surrogate_leaves_valid_toml() -> None:
    assert tomli.loads(f"a = {quoting.toml_string(chr(0xDC80))}") == {"a": "\ufffd"}


@given(WORDS)
def test_a_label_of_prometheus_holds_the_text(text: str) -> None:
    made = quoting.prometheus_label(text)
    inside = made[1:-1]
    assert "\n" not in inside
    plain = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), inside)
    assert plain == text
    assert not re.search(r'(?<!\\)(?:\\\\)*"', inside)


@given(WORDS)
def test_a_value_of_qemu_begins_no_other_option(text: str) -> None:
    assert "," not in quoting.qemu_value(text).replace(",,", "")


ESCAPES = {"html.escape", "escape", "saxutils.escape", "quoteattr"}


def escapes_in(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines that escape text by themselves: a call, or a chain that doubles backslashes."""
    lines = []
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        doubles = called.endswith(".replace") and [
            argument.value for argument in node.args if isinstance(argument, ast.Constant)
        ] in (["\\", "\\\\"], ['"', '\\"'], ["%", "%%"], ["|", "\\|"], ["<", "&lt;"])
        if called in ESCAPES or doubles:
            lines.append(node.lineno)
    return lines


def test_text_is_escaped_in_one_module_alone() -> None:
    own = {name for name, module in modules().items() if escapes_in(module.nodes)}
    assert own == {"edgekit.base.quoting"}


@pytest.mark.parametrize("name", sorted(n for n in dir(quoting) if n.startswith("c_")))
def test_what_is_made_for_c_is_ascii(name: str) -> None:
    assert getattr(quoting, name)("größe 层 \u2028 \U0001f600").isascii()
