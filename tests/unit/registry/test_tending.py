from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.base.decode import decode
from edgekit.base.errors import StorageError, UsageError
from edgekit.registry.address import parse_rollout
from edgekit.registry.reports import BoardReport, FullError, ReportWriter, read_reports
from edgekit.registry.rollout import Limits, Rollout, Version, moved, parse_limits
from edgekit.registry.tending import decide, tally

NEW, OLD = Version("2", "cd" * 32, "rpi4"), Version("1", "ab" * 32, "rpi4")
ROLLOUT = Rollout(
    *("rollout", "net", "kitchen", "running", NEW, OLD, (1000, 5000, 10_000), 0, 5),
    healthy_seconds=3600,
    most_failures=200,
    began=1_000_000,
    judged=5,
)
BOARDS = [f"board-{number}" for number in range(1000)]
IN_FIRST = [board for board in BOARDS if ROLLOUT.place_of(board) < 1000]


def report(board: str = "board-1", error: str = "", /, **changes: object) -> BoardReport:
    outcome = "failed" if error else "updated"
    fields = {
        "name": "net",
        "channel": "kitchen",
        "board": board,
        "manifest": NEW.manifest,
        "counter": 5,
        "outcome": outcome,
        "verified": not error,
        "error": error,
        **({} if error else {"nanoseconds": 2000}),
    }
    return decode(BoardReport, {**fields, **changes})


def reports(failures: int) -> list[BoardReport]:
    return [report(board, "signal 4" * (i < failures)) for i, board in enumerate(IN_FIRST)]


@pytest.mark.parametrize(
    ("failures", "second", "move", "reason"),
    [
        (0, 3599, None, " 1 s more"),
        (0, 3600, "next", "healthy for 1 h"),
        (2, 3600, "next", "healthy"),
        (3, 0, "stop", "3 of {} boards that reported failed"),
    ],
)
def test_a_wave_is_followed_by_the_next_one_or_stopped(
    failures: int, second: int, move: str | None, reason: str
) -> None:
    assert len(IN_FIRST) in range(100, 150)  # so that two are at most 2 %, and three are more

    done = decide(ROLLOUT, tally(ROLLOUT, reports(failures)), ROLLOUT.began + second)

    assert done.move == move
    assert reason.format(len(IN_FIRST)) in done.reason


def test_a_wave_without_reports_does_not_become_healthy() -> None:
    second = replace(ROLLOUT, wave=1)
    in_second = next(b for b in BOARDS if 1000 <= second.place_of(b) < 5000)
    late = ROLLOUT.began + 10**9

    assert decide(ROLLOUT, tally(ROLLOUT, []), late).move is None
    assert decide(second, tally(second, reports(0)), late).move is None
    assert decide(second, tally(second, [report(in_second)]), late).move == "next"


def test_nothing_moves_by_itself_unless_that_was_asked_for() -> None:
    by_hand = replace(ROLLOUT, healthy_seconds=None, most_failures=None)

    assert decide(by_hand, tally(by_hand, reports(50)), 10**10).move is None
    for state in ("paused", "stopped", "back"):
        done = decide(replace(ROLLOUT, state=state), tally(ROLLOUT, reports(9)), 10**10)
        assert (done.move, done.is_over) == (None, True)
    last = replace(ROLLOUT, wave=2)
    outside = [report(board) for board in BOARDS]
    assert decide(last, tally(last, outside), 10**10).is_over


def test_a_clock_that_was_years_ahead_delays_and_does_not_hurry() -> None:
    ahead = replace(ROLLOUT, began=ROLLOUT.began + 10**9)

    assert decide(ahead, tally(ahead, reports(0)), ROLLOUT.began + 3600).move is None


def test_only_boards_of_the_share_count_and_only_for_this_version() -> None:
    outside = [board for board in BOARDS if board not in IN_FIRST]
    seen = tally(
        ROLLOUT,
        [
            *(report(board, "lies") for board in outside),
            report(IN_FIRST[0], manifest=OLD.manifest),
            report(IN_FIRST[1], "from the future", counter=6),
            report(IN_FIRST[2]),
        ],
    )

    assert (seen.healthy, seen.failed, seen.errors) == (1, 0, ())
    assert [(one.text, one.boards) for one in seen.digests] == [
        (OLD.manifest, 1),
        (NEW.manifest, 1),
    ]
    assert seen.median_nanoseconds == 2000


def test_failures_from_before_a_resumption_are_forgiven() -> None:
    stopped = moved(ROLLOUT, "stop", 6)
    with pytest.raises(UsageError, match="is stopped"):
        moved(stopped, "next", 7)
    resumed = moved(stopped, "resume", 7)

    assert tally(stopped, reports(3)).failed == 3
    assert tally(resumed, reports(3)).failed == 0
    assert tally(resumed, [report(IN_FIRST[0], "again", counter=7)]).failed == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"board": ""},
        {"board": "b" * 254},
        {"board": "a\nb"},
        {"board": "\ud800"},
        {"manifest": "cd"},
        {"outcome": "splendid"},
        {"nanoseconds": -1},
        {"error": "e" * 1001},
        {"counter": 1 << 60},
        {"more": 1},
    ],
)
def test_what_is_no_report_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|unknown"):
        report(**changes)


def test_a_board_is_kept_once_and_no_more_boards_than_fit(tmp_path: Path) -> None:
    file, place = tmp_path / "reports.sqlite", parse_rollout("oci://localhost/net", "kitchen")
    assert tuple(read_reports(file, place)) == ()
    writer = ReportWriter(file, most=2)
    for error in ("first", "second"):
        writer.keep(report("a", error))
    writer.keep(report("a", channel="garage"))
    with pytest.raises(FullError):
        writer.keep(report("b"))
    writer.keep(report("a"))
    writer.close()

    assert tuple(read_reports(file, place)) == (report("a"),)
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="can't be used"):
        tuple(read_reports(file, place))


def test_limits_are_a_time_and_a_share() -> None:
    assert parse_limits(3600, "2.5%") == Limits(3600, 250)
    assert parse_limits(None, "0%") == Limits(None, 0)
    for after, share in ((0.1, "2%"), (1e9, "2%"), (60, "two"), (60, "101%")):
        with pytest.raises(UsageError):
            parse_limits(after, share)
