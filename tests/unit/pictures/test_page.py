"""A page is one file: names in it are text, its scripts are known by their hashes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from edgekit.pictures.page import page_of, part_html, pictures_data
from edgekit.pictures.parts import Part, chart_of, table_of

HOSTILE = "</script><script>alert(1)</script><!--\u2028&\"'<img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """The tags of a page, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def part(name: str) -> Part:
    chart = chart_of(name, [{"layer": name}])
    return Part("steps", "Steps", "Text.", (chart,), table_of(("layers",), [(name,)]))


def test_a_hostile_name_is_text_and_data() -> None:
    page = page_of(HOSTILE, [("model", HOSTILE)], [part(HOSTILE)])
    read = Reader(page)

    assert not any(tag == "img" for tag, _ in read.tags)
    data, *code = read.scripts
    assert json.loads(data)["steps"]["charts"][0]["data"]["values"] == [
        {"layer": HOSTILE.replace("\u2028", "\\u2028")}
    ]
    assert not any("alert(1)" in script for script in code)


@given(st.text())
def test_any_name_stays_data(name: str) -> None:
    read = Reader(pictures_data([part(name)]) + part_html(part(name)))

    assert len(read.scripts) == 1
    json.loads(read.scripts[0])
    assert {tag for tag, _ in read.tags} <= {
        *("script", "section", "h2", "p", "div", "details", "summary", "table", "thead", "tbody"),
        *("tr", "th", "td", "code"),
    }


def test_the_policy_names_each_script_and_allows_no_request() -> None:
    read = Reader(page_of("net", [], [part("conv")]))
    policies = [values["content"] for tag, values in read.tags if "http-equiv" in values]
    policy = dict(rule.strip().split(" ", 1) for rule in str(policies[0]).split(";"))

    assert policy["default-src"] == "'none'"
    assert "connect-src" not in policy
    hashes = re.findall(r"'sha256-([^']+)'", policy["script-src"])
    assert hashes == [b64encode(sha256(one.encode()).digest()).decode() for one in read.scripts[1:]]
    assert not any(
        values.get("src") or values.get("href", "#")[0] != "#" for _, values in read.tags
    )
