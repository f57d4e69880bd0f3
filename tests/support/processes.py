"""Processes of this machine and who started them, from /proc."""

from __future__ import annotations

from pathlib import Path


def command_lines() -> dict[int, list[str]]:
    """Return the command line of every running process, by its number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(words):
            found[int(folder.name)] = words
    return found


def descendants(ancestor: int) -> list[int]:
    """Those that it started, and those that these started, and so on."""
    parents = {pid: _parent(pid) for pid in command_lines()}
    found = [ancestor]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _parent(pid: int) -> int:
    try:
        said = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(said.rpartition(")")[2].split()[1])
