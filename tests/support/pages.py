"""Files in the pages for contributors: a line that begins with a path in backquotes and ends with
a colon, and the block of code below it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from support.source import ROOT

_FILE = re.compile(r"^`([^`\n]+)`[^\n]*:\n\n```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(page: str) -> dict[str, str]:
    """Return the files of a page of docs/adding by path, and of a diff its text."""
    text = (ROOT / "docs" / "adding" / page).read_text(encoding="utf-8")
    return {path: code for path, _, code in _FILE.findall(text)}


def put_files(page: str, folder: Path) -> list[str]:
    """Put the files of a page into a folder, and apply its diffs there."""
    for path, code in files_of(page).items():
        target = folder / path
        if code.startswith("@@"):
            assert target.is_file(), f"{page} changes {path}, which is missing"
            whole = f"--- a/{path}\n+++ b/{path}\n{code}"
            command = ["patch", "-p1", "--no-backup-if-mismatch", "-d", str(folder)]
            done = subprocess.run(command, input=whole, capture_output=True, text=True)
            assert done.returncode == 0, f"{page}, {path}: {done.stdout}{done.stderr}"
        else:
            assert not target.exists(), f"{page} makes {path}, which exists"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(code, encoding="utf-8")
    return list(files_of(page))
