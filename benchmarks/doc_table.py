"""Tables in the docs that a benchmark writes, between a mark of its own and the end of it."""

from __future__ import annotations

from pathlib import Path

END_MARK = "<!-- end -->\n"


def write_table(page: Path, mark: str, text: str) -> None:
    """In place of what an earlier run wrote between the mark and its end."""
    before, found, after = page.read_text(encoding="utf-8").partition(mark)
    assert found, f"{page} has lost its mark"
    _, end, rest = after.partition(END_MARK)
    assert end, f"{page} has lost the end of its mark"
    page.write_text(f"{before}{mark}\n{text.strip()}\n\n{end}{rest}", encoding="utf-8")
