"""Dates the figures in the docs, and says which of the code that they judge has changed since.

    python -m benchmarks.figures                         # write the sentences below the headers
    python -m benchmarks.figures --measured docs/x.md    # after a run whose figures were typed in

A header is a comment above figures: the command that printed them, the code that they judge with a
digest of each folder, and the day. The sentence below it is for readers. Benchmarks that write a
page date it themselves. A test fails where a sentence is not what this program would write.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import hashlib
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from benchmarks import headlines

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".c", ".cc", ".h", ".toml")
_HEADER = re.compile(
    r"^<!-- figures: (?P<command>[^;]+); code: (?P<code>[^;]+); measured: (?P<day>[\d-]+) -->\n"
    r"(?P<sentence>\*.*\n)?",
    re.MULTILINE,
)


def header(command: str, folders: Sequence[str], day: str | None = None) -> str:
    """Return the header of figures that have just been measured, with its sentence."""
    code = " ".join(f"{folder}={digest(ROOT / folder)}" for folder in folders)
    day = day or datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return with_sentences(f"<!-- figures: {command}; code: {code}; measured: {day} -->\n")


def undated(text: str) -> str:
    """Return a header for figures of which some are from earlier code."""
    return with_sentences(re.sub(r"=\w{12}\b", f"={hashlib.sha256().hexdigest()[:12]}", text))


def with_sentences(page: str) -> str:
    """Return the text of a page with the sentence that is true below each header."""
    return _HEADER.sub(lambda found: found[0][: found[0].index("\n") + 1] + _sentence(found), page)


def measured(page: str, *, last: bool = False) -> str:
    """Return the text of a page with all headers, or the last one, dated today."""
    for found in list(_HEADER.finditer(page))[::-1][: 1 if last else None]:
        folders = [each.partition("=")[0] for each in found["code"].split()]
        page = page[: found.start()] + header(found["command"], folders) + page[found.end() :]
    return page


def commands(page: str) -> list[str]:
    """Return the commands whose figures a page shows."""
    return [found["command"] for found in _HEADER.finditer(page)]


def _sentence(found: re.Match[str]) -> str:
    pairs = [each.split("=") for each in found["code"].split()]
    changed = [f"`{folder}`" for folder, kept in pairs if digest(ROOT / folder) != kept]
    begin = f"*Measured on {found['day']} by `{found['command']}`"
    if not changed:
        return f"{begin}.*\n"
    return f"{begin}. Outdated: {', '.join(changed)} changed since, so that a run may differ.*\n"


@lru_cache
def digest(path: Path) -> str:
    """Return a digest of the code in a folder or file; comments and docstrings do not count."""
    if not path.exists() and path.is_relative_to(ROOT):
        raise FileNotFoundError(f"{path} has moved: name the code that the figures judge anew")
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if file.suffix in SUFFIXES and file.is_file():
            text = file.read_text(encoding="utf-8")
            found.update(file.relative_to(path.parent).as_posix().encode())
            found.update((code_of(text) if file.suffix == ".py" else text).encode())
    return found.hexdigest()[:12]


def code_of(text: str) -> str:
    """Return Python without comments, docstrings and blank space."""
    lines = text.splitlines(keepends=True)
    for line, start, end in sorted(_unread(text), reverse=True):
        lines[line] = lines[line][:start] + lines[line][end:]
    return "".join("".join(lines).split())


def _unread(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the places of comments and docstrings: a line, and where it starts and ends in it."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0] - 1, token.start[1], token.end[1]
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(value := node.value, ast.Constant):
            last = node.end_lineno or node.lineno
            for number in range(node.lineno - 1, last) if isinstance(value.value, str) else ():
                begin = 0 if number >= node.lineno else node.col_offset
                yield number, begin, len(lines[number])


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    parser = argparse.ArgumentParser(description="date the figures in the docs")
    parser.add_argument("--measured", type=Path, help="a page whose figures are new")
    options = parser.parse_args()
    if options.measured:
        text = options.measured.read_text(encoding="utf-8")
        options.measured.write_text(measured(text), encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        now = headlines.filled(with_sentences(text))
        if now != text:
            page.write_text(now, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
