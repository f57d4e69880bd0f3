"""Tables in the docs that a benchmark writes, between a mark of its own and the end of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks import figures

END_MARK = "<!-- end -->\n"


def write_table(page: Path, mark: str, text: str, *, dates: bool = True) -> None:
    """Replace what lies between the mark and its end, and date the header above the mark."""
    before, found, after = page.read_text(encoding="utf-8").partition(mark)
    assert found, f"{page} has lost its mark"
    _, end, rest = after.partition(END_MARK)
    assert end, f"{page} has lost the end of its mark"
    dated = figures.measured(before, last=True) if dates else before
    page.write_text(f"{dated}{mark}\n{text.strip()}\n\n{end}{rest}", encoding="utf-8")
