"""The tutorials as a reader types them: the console blocks of a page, and what they print.

`…` stands for any number of lines, and inside a line for the rest of it. Words and whole numbers
are compared; times, sizes, versions and digests are not. Of a command that works, stdout is
compared: progress goes to stderr, and is left out of what a failing command prints: how much of it
there is depends on how busy the machine is.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.source import ROOT

FOLDER = ROOT / "docs" / "tutorials"
ELLIPSIS = "…"
_BLOCK = re.compile(r"(?:^`([^`\n]+)`[^\n]*:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "\x1e"
_VOLATILE = re.compile(
    r"\b[0-9a-f]{12,}\b|\d{4}-\d\d-\d\d( \d\d:\d\d)?"
    r"|\d[\d,]*(\.\d+)+(e[-+]?\d+)?( ?(ns|µs|ms|s|k|M|[KMG]iB|%))?\b"
    r"|\d[\d,]*(e[-+]?\d+| ?(ns|µs|ms|s|min|k|M|bytes|[KMG]iB)\b)"
)


_PROGRESS = re.compile(r"^.* \((\d+ min )?[\d.]+ m?s\)\n", re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A command of a page."""

    line: str
    printed: tuple[str, ...]
    """What the page says that it prints."""


@dataclass(frozen=True)
class Answer:
    code: int
    lines: tuple[str, ...]


def commands(page: str) -> list[Typed]:
    """Return the commands of a page, in order."""
    found: list[Typed] = []
    for _, kind, text in _BLOCK.findall((FOLDER / page).read_text("utf-8")):
        if kind == "console":
            assert text.startswith("$ "), f"{page}: a console block begins with a command"
            for part in text.removeprefix("$ ").split("\n$ "):
                line, *printed = part.rstrip("\n").split("\n")
                found.append(Typed(line, tuple(printed)))
    return found


def files(page: str) -> dict[str, str]:
    """Return the files that a page shows, by path."""
    blocks = _BLOCK.findall((FOLDER / page).read_text("utf-8"))
    return {path: text for path, _, text in blocks if path}


def type_in(lines: list[str], folder: Path, environment: Mapping[str, str]) -> list[Answer]:
    """Run the lines in one shell, as a reader does who types one after the other."""
    end = f"printf '{_END}%d\\n' $status; printf '{_END}\\n' >&2; (exit $status)"
    script = "".join(f"{line}\nstatus=$?; {end}\n" for line in lines)
    done = subprocess.run(
        ["bash", "--norc"],
        input=script,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    outputs, errors = (re.split(f"{_END}(\\d*)\n", text) for text in (done.stdout, done.stderr))
    return [
        Answer(
            int(code), tuple((out if code == "0" else out + _PROGRESS.sub("", error)).splitlines())
        )
        for out, code, error in zip(outputs[::2], outputs[1::2], errors[::2], strict=False)
    ]


def complaints(page: str, typed: list[Typed], answers: list[Answer], home: Path) -> Iterator[str]:
    """Yield what a reader of the page would stumble over."""
    following = [*(each.line for each in typed[1:]), ""]
    for command, answer, after in zip(typed, answers, following, strict=True):
        printed = [line.replace(str(home), "/home/you") for line in answer.lines]
        if answer.code != 0 and after != "echo $?":
            yield f"{page}: {command.line} ends with {answer.code}:\n" + "\n".join(printed)
        elif not matches(list(command.printed), printed):
            shown = "\n".join(printed)
            yield f"{page}: {command.line} prints something else than the page says:\n{shown}"


def matches(expected: list[str], printed: list[str]) -> bool:
    """Compare lines; an ellipsis stands for any number of them."""
    if not expected:
        return not printed
    if expected[0] == ELLIPSIS:
        return any(matches(expected[1:], printed[start:]) for start in range(len(printed) + 1))
    parts = [re.escape(stable(part)) for part in expected[0].split(ELLIPSIS)]
    return (
        bool(printed)
        and re.fullmatch(" ?.*".join(parts), stable(printed[0])) is not None
        and matches(expected[1:], printed[1:])
    )


def stable(line: str) -> str:
    """Return what is the same in every run."""
    return " ".join(_VOLATILE.sub("#", line).split())
