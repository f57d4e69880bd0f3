"""Campaigns of benchmarks: what dies costs its own task, and a stopped run goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import campaign
from benchmarks.campaign import Task

TASKS: list[Task] = [("right",), ("wrong",), ("dies",), ("right", "too")]


@dataclass(frozen=True)
class Verdict:
    case: str
    verdict: str
    reason: str = ""


def judge(tasks: Sequence[Task]) -> dict[Task, list[Verdict]]:
    if ("dies",) in tasks:
        os._exit(3)
    return {task: [Verdict("-".join(task), task[0])] for task in tasks}


def run(page: Path, *options: str) -> int:
    work = campaign.Campaign(
        "test",
        page,
        Verdict,
        judge,
        lambda task, reason: [Verdict("-".join(task), "crash", reason)],
        lambda verdicts, left, fresh: "\n".join(
            [
                *(f"{item.case}: {item.verdict} {item.reason}" for item in verdicts),
                f"{left} {fresh}",
            ]
        ),
        at_once=2,
    )
    return campaign.run(work, TASKS, campaign.parser("A test", page).parse_args(options))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(campaign, "CACHE", tmp_path / "cache")
    return tmp_path / "page.md"


def test_a_task_on_which_a_process_dies_costs_no_other_its_verdict(page: Path) -> None:
    assert run(page) == 1
    assert page.read_text().splitlines() == [
        "right: right ",
        "wrong: wrong ",
        "dies: crash the process died with exit code 3",
        "right-too: right ",
        "0 True",
    ]


def test_a_later_run_judges_what_is_open_alone(
    page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(page, "--table") == 0
    assert page.read_text() == "4 False"

    run(page)
    run(page)
    run(page, "--again", "wrong,crash")
    run(page, "--fresh")

    judged = [line.partition(" of ")[0] for line in capfd.readouterr().out.splitlines()]
    assert judged == ["0", "4", "0", "2", "4"]
