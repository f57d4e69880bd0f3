"""Pictures are well-formed whatever the texts in them are, and one module writes them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from support.source import modules

from edgekit.base import svg

SVG = "{http://www.w3.org/2000/svg}"


@given(st.text(), st.text())
def test_texts_and_attributes_are_read_back_as_printable(words: str, label: str) -> None:
    drawn = svg.picture(10, 20, svg.with_tooltip(words, svg.text(1, 2, words)), aria_label=label)
    root = ElementTree.fromstring(drawn)

    (title,) = root.iter(f"{SVG}title")
    (text,) = root.iter(f"{SVG}text")
    assert title.text == text.text
    assert (root.attrib["width"], root.attrib["viewBox"]) == ("10", "0 0 10 20")


def test_numbers_have_at_most_one_digit_after_the_point() -> None:
    drawn = svg.rectangle(0, 1 / 3, 2.04, 10, class_="bar", stroke_width=1)

    assert drawn == '<rect x="0" y="0.3" width="2" height="10" class="bar" stroke-width="1"/>'


@given(st.text(max_size=50), st.floats(0, 400))
def test_a_text_that_was_cut_fits(words: str, width: float) -> None:
    fitted = svg.fitting(words, width)

    assert len(fitted) * svg.CHARACTER <= width or fitted == ""
    assert fitted in (words, "") or words.startswith(fitted.removesuffix("…"))


def test_no_other_module_writes_elements_of_svg() -> None:
    written = re.compile(r"<(svg|rect|line|marker)[ >/]")
    found = [
        module.name
        for module in modules().values()
        if module.name != "edgekit.base.svg" and written.search(module.path.read_text("utf-8"))
    ]

    assert not found
