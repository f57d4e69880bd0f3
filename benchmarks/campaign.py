"""Tasks judged in forked processes, a group at a time. Verdicts are kept in a cache, so that a run
that was stopped goes on where it was."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from benchmarks import figures
from benchmarks.forked import run_each

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit-tests"

Task: TypeAlias = tuple[str, ...]
V = TypeVar("V")
"""A dataclass with a `verdict`: right, refused, wrong, crash, or another that counts as none."""


@dataclass(frozen=True)
class Campaign(Generic[V]):
    name: str
    """The name of the kept verdicts, with the version of what they compare with."""
    page: Path
    """The page of the docs."""
    verdict: Callable[..., V]
    """Makes a verdict from the fields that were kept."""
    judge: Callable[[Sequence[Task]], Mapping[Task, Sequence[V]]]
    crashed: Callable[[Task, str], Sequence[V]]
    """Returns the verdicts on a task on which a process dies, for the reason given."""
    markdown: Callable[[Sequence[V], int, bool], str]
    """Returns the page from all verdicts, the number of tasks that were not run, and whether all
    are of this run."""
    at_once: int = 1
    """The tasks of a group. Those of a group on which a process dies are tried alone."""
    limit_s: float = 900


def parser(description: str | None, page: Path) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--filter", default="", help="a regular expression for the tasks' names")
    made.add_argument("--again", default="", help="verdicts to try once more, with commas")
    made.add_argument("--fresh", action="store_true", help="forget earlier verdicts")
    made.add_argument("--table", action="store_true", help="write the page of what is known")
    made.add_argument("--jobs", type=int, default=1)
    made.add_argument("--json", type=Path, help="write every verdict to this file")
    made.add_argument("--no-docs", action="store_true", help=f"leave {page.name} as it is")
    made.add_argument("--verbose", action="store_true", help="print each verdict but right")
    return made


def header(command: str, judged: Sequence[str], fresh: bool) -> str:
    """Return the comment above a page's figures, without the day if some are of earlier runs."""
    dated = figures.header(command, judged)
    return dated if fresh else figures.undated(dated)


def run(campaign: Campaign[V], tasks: Sequence[Task], options: argparse.Namespace) -> int:
    """Judge the tasks that are open, write the page, and return the exit status."""
    file = CACHE / f"{campaign.name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        file.unlink(missing_ok=True)
    verdicts = _read(file, campaign)
    again = set(options.again.split(",")) if options.again else set()
    waiting = [
        task
        for task in tasks
        if not options.table
        and (task not in verdicts or any(_word(item) in again for item in verdicts[task]))
    ]
    started = time.perf_counter()

    def keep(found: Mapping[Task, Sequence[V]]) -> None:
        verdicts.update(found)
        with file.open("a") as stream:
            for task, items in found.items():
                entry = {"task": task, "verdicts": [_fields(item) for item in items]}
                stream.write(json.dumps(entry) + "\n")
        for item in (each for items in found.values() for each in items):
            if options.verbose and _word(item) in ("refused", "wrong", "crash"):
                print(*(str(value)[:300] for value in _fields(item).values()), file=sys.stderr)

    groups = [waiting[k : k + campaign.at_once] for k in range(0, len(waiting), campaign.at_once)]
    alone: list[list[Task]] = []
    for group, found in run_each(campaign.judge, groups, options.jobs, campaign.limit_s):
        if not isinstance(found, str):
            keep(found)
        elif len(group) > 1:
            alone += [[task] for task in group]
        else:
            keep({group[0]: campaign.crashed(group[0], found)})
    for (task,), found in run_each(campaign.judge, alone, options.jobs, campaign.limit_s):
        keep({task: campaign.crashed(task, found)} if isinstance(found, str) else found)
    known = [item for task in tasks for item in verdicts.get(task, ())]
    if options.json:
        options.json.write_text(json.dumps([_fields(item) for item in known], indent=1))
    if not options.filter and not options.no_docs:
        left = sum(task not in verdicts for task in tasks)
        campaign.page.write_text(campaign.markdown(known, left, len(waiting) == len(tasks)))
    counts = Counter(_word(item) for item in known)
    seconds = time.perf_counter() - started
    print(f"{len(waiting)} of {len(tasks)} tasks in {seconds:.0f} s: {dict(counts)}")
    return 1 if counts["wrong"] + counts["crash"] else 0


def _read(file: Path, campaign: Campaign[V]) -> dict[Task, Sequence[V]]:
    found: dict[Task, Sequence[V]] = {}
    for line in file.read_text().splitlines() if file.is_file() else ():
        entry = json.loads(line)
        found[tuple(entry["task"])] = [campaign.verdict(**item) for item in entry["verdicts"]]
    return found


def _word(verdict: Any) -> str:
    return str(verdict.verdict)


def _fields(verdict: Any) -> dict[str, Any]:
    return asdict(verdict)
