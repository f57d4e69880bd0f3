"""The documentation as a site: it builds strictly, loads nothing from other hosts, is searched."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.needs import needs
from support.source import ROOT

pytestmark = needs("docs")


def built(source: Path, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Build a site with the options of `make docs`."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    options = re.findall(r"^SITE_OPTIONS := (.*) --doctree-dir", makefile, re.MULTILINE)[0].split()
    options[options.index("--conf-dir") + 1] = str(ROOT / "docs")
    options += ["--doctree-dir", str(target / "trees"), *more]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(target / "site")]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("docs")
    done = built(ROOT, target)
    assert (done.returncode, done.stderr) == (0, "")
    return target / "site"


@pytest.mark.slow
def test_the_site_holds_every_page_and_opens_on_the_first(site: Path) -> None:
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]

    assert len(pages) > 45
    assert not [page for page in pages if not (site / page).with_suffix(".html").is_file()]
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()
    for part in ("Tutorials", "How-tos", "Explanations", "Reference"):
        assert f'<span class="caption-text">{part}</span>' in (site / "index.html").read_text()


class _Loads(HTMLParser):
    """Collects what a browser loads for a page; a link to click on is not loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attributes}
        is_loaded = tag == "link" and named.get("rel") not in ("canonical", "index", "search")
        key = "href" if is_loaded else "src"
        if tag != "a" and key in named:
            self.found.append(named[key])


def loaded_by(site: Path) -> Iterator[str]:
    for path in site.rglob("*"):
        if path.suffix == ".html":
            parser = _Loads()
            parser.feed(path.read_text("utf-8"))
            yield from parser.found
        elif path.suffix in (".css", ".svg"):
            text = path.read_text("utf-8")
            yield from re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')]+)""", text)


@pytest.mark.slow
def test_the_site_asks_no_other_host_for_anything(site: Path) -> None:
    loads = set(loaded_by(site))

    assert len(loads) > 10
    assert not [each for each in loads if re.match(r"\w+://|//", each)]


@pytest.mark.slow
@needs("chromium")
def test_the_search_works_without_a_server(site: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    profile = f"--user-data-dir={tmp_path}"
    page = f"file://{site}/search.html?q=quarantined"

    done = subprocess.run(
        [str(browser), *flags, profile, "--dump-dom", page], capture_output=True, text=True
    )

    results = done.stdout.partition('id="search-results"')[2]
    assert 'href="docs/farm.html' in results


@pytest.mark.parametrize(
    ("links", "is_sound"), [(["two.md#there-is"], True), (["three.md", "two.md#no"], False)]
)
def test_a_broken_link_or_anchor_is_an_error(
    links: list[str], is_sound: bool, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    toctree = "```{toctree}\ntwo\n```"
    texts = "\n".join(f"[text]({link})" for link in links)
    (source / "one.md").write_text(f"# One\n\n{texts}\n\n{toctree}\n")
    (source / "two.md").write_text("# Two\n\n## There is\n")

    done = built(source, tmp_path, "-D", "root_doc=one", "-D", "include_patterns=*.md")

    assert (done.returncode == 0) == is_sound
    assert is_sound or all(link.rpartition("#")[2] in done.stderr for link in links)
