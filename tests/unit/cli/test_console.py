from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import ModelError
from edgekit.base.events import Events
from edgekit.cli.console import Console
from edgekit.cli.progress import PlainProgress


@dataclass(frozen=True)
class Report:
    name: str
    speed: float


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def captured(**flags: bool) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Console(stdout=out, stderr=err, **flags), out, err


def on_terminal(**flags: bool) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = Terminal(), Terminal()
    return Console(stdout=out, stderr=err, **flags), out, err


@pytest.fixture(autouse=True)
def ordinary_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")


def test_an_error_is_a_sentence_details_and_a_hint_on_stderr() -> None:
    console, out, err = captured()

    console.error(ModelError("it is empty", hint="export it again", details=("one", "two")))

    assert err.getvalue() == "error: it is empty\n  one\n  two\nhint: export it again\n"
    assert out.getvalue() == ""


def test_with_json_an_error_is_also_the_one_document_on_stdout() -> None:
    console, out, err = captured(as_json=True)

    console.error(ModelError("it is empty", hint="export it again", details=("one",)))

    assert json.loads(out.getvalue()) == {
        "error": {
            "type": "ModelError",
            "message": "it is empty",
            "hint": "export it again",
            "details": ["one"],
            "exit_code": 3,
        }
    }
    assert err.getvalue().startswith("error: it is empty\n")


def test_an_error_after_the_report_adds_no_second_document() -> None:
    console, out, _ = captured(as_json=True)

    console.report(Report("a", math.nan), lambda: None)
    console.error(ModelError("wrong numbers"))

    assert json.loads(out.getvalue()) == {"name": "a", "speed": None}


def test_two_reports_in_one_run_are_a_mistake_of_ours() -> None:
    console, _, _ = captured(as_json=True)
    console.json(Report("a", 1.0))

    with pytest.raises(RuntimeError):
        console.json(Report("b", 1.0))


def test_columns_are_aligned_and_a_row_in_a_pipe_is_one_line() -> None:
    console, out, _ = captured()

    console.table(
        ("name", "size", "text"),
        [("a", 5, "x" * 100), ("longer", 12345, None)],
        right=("size",),
    )

    assert out.getvalue().splitlines() == [
        "name     size  text",
        "a           5  " + "x" * 100,
        "longer  12345  -",
    ]


def test_a_field_without_a_value_has_no_line() -> None:
    console, out, _ = captured()

    console.fields([("median", "12 ms"), ("governor", None), ("runs", 0)])

    assert out.getvalue().splitlines() == ["median  12 ms", "runs    0"]


def test_the_last_column_is_wrapped_to_the_terminal() -> None:
    console, out, _ = on_terminal(color=True)

    console.table(("name", "text"), [("a", "word " * 30)])

    lines = out.getvalue().splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 60 for line in lines[1:])
    assert all(line.startswith("      word") for line in lines[2:])


@pytest.mark.parametrize("why", ["NO_COLOR", "TERM", "flag", "pipe"])
def test_no_escape_sequence_where_nobody_wants_one(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    if why == "TERM":
        monkeypatch.setenv("TERM", "dumb")
    console, out, err = captured() if why == "pipe" else on_terminal(color=why != "flag")

    console.heading("title")
    console.table(("a",), [("b",)])
    with console.events.stage("work", total=2) as stage:
        stage.advance()
    console.events.warn("careful")
    console.error(ModelError("broken"))

    assert "\x1b" not in out.getvalue() + err.getvalue()


def test_a_terminal_gets_colours_and_a_live_display_that_leaves_a_line() -> None:
    console, out, err = on_terminal()

    with console.events.stage("[bold]compile", total=2) as stage:
        stage.advance(detail="fuse")
        console.events.warn("careful")
        stage.result = "3 kernels"
    console.heading("title")
    console.error(ModelError("broken"))

    assert "\x1b[1mtitle" in out.getvalue()
    assert "\x1b[1;31merror:" in err.getvalue()
    assert "[bold]compile: 3 kernels (" in err.getvalue()
    assert "warning: careful" in err.getvalue()


def test_a_failed_stage_gives_the_terminal_back_before_the_error() -> None:
    console, _, err = on_terminal()

    with pytest.raises(ModelError) as caught, console.events.stage("import"):
        raise ModelError("broken")
    console.error(caught.value)

    shown = err.getvalue()
    assert shown.index("\x1b[?25l") < shown.index("\x1b[?25h") < shown.index("broken")


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "a\rb"])
def test_text_from_a_file_cannot_steer_the_terminal(hostile: str) -> None:
    console, out, err = captured(verbose=True)

    console.print(hostile)
    console.table(("a",), [(hostile,)])
    console.fields([("a", hostile)])
    console.heading(hostile)
    console.events.warn(hostile)
    console.events.note(hostile)
    with console.events.stage(hostile) as stage:
        stage.result = hostile
    console.error(ModelError(hostile, hint=hostile, details=(hostile,)))

    assert hostile not in out.getvalue() + err.getvalue()


@given(st.text(), st.text())
def test_a_table_row_stays_one_line_whatever_is_in_it(left: str, right: str) -> None:
    console, out, _ = captured()

    console.table(("a", "b"), [(left, right)])

    assert len(out.getvalue().splitlines()) == 2


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(verbose: bool = False) -> tuple[Events, Clock, io.StringIO]:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, verbose=verbose, clock=clock)
    return Events(progress.show), clock, stream


def test_a_log_is_not_told_of_short_stages() -> None:
    events, _, stream = plain()

    with events.stage("short", total=3) as stage:
        stage.advance()
    events.note("only with --verbose")

    assert stream.getvalue() == ""


def test_with_verbose_every_step_is_a_line() -> None:
    events, _, stream = plain(verbose=True)

    with events.stage("short") as stage:
        stage.result = "done"
    events.note("by the way")

    first, second = stream.getvalue().splitlines()
    assert first.startswith("short: done (")
    assert second == "by the way"


def test_a_long_stage_shows_a_sign_of_life_now_and_then() -> None:
    events, clock, stream = plain()

    with events.stage("long", total=100) as stage:
        for _ in range(25):
            clock.now += 1
            stage.advance(detail="part")

    assert stream.getvalue().splitlines() == ["long: 10 %, about 1 min 30 s left; part"]


def test_a_stage_that_its_user_ended_did_not_fail() -> None:
    events, _, stream = plain(verbose=True)
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), events.stage("work"):
            raise error

    stopped, failed = stream.getvalue().splitlines()
    assert stopped.startswith("work: stopped after ")
    assert failed.startswith("work: failed after ")


def test_lines_about_one_stage_become_rarer() -> None:
    events, clock, stream = plain()

    with events.stage("long", total=3600) as stage:
        for _ in range(3600):
            clock.now += 1
            stage.advance()

    shares = [int(line.split()[1]) for line in stream.getvalue().splitlines()]
    assert shares == sorted(shares)
    assert 5 < len(shares) < 10


def test_a_stage_that_reports_nothing_is_told_of_too() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, verbose=False, clock=clock)
    with Events(progress.show).stage("silent"):
        clock.now += 11
        progress.tick()
    progress.close()

    assert stream.getvalue() == "silent: 11 s so far\n"


def test_quiet_keeps_warnings_and_results_only() -> None:
    console, out, err = captured(quiet=True, verbose=True)

    with console.events.stage("work"):
        console.events.note("aside")
        console.events.warn("careful")
    console.print("result")

    assert (out.getvalue(), err.getvalue()) == ("result\n", "warning: careful\n")


def test_with_json_progress_is_plain_even_on_a_terminal() -> None:
    console, out, err = on_terminal(as_json=True, verbose=True)

    with console.events.stage("work"):
        pass
    console.json(Report("a", 1.5))

    assert "\x1b" not in err.getvalue()
    assert json.loads(out.getvalue()) == {"name": "a", "speed": 1.5}


def test_paths_may_hold_bytes_that_are_no_text() -> None:
    console, out, _ = captured(as_json=True)

    console.json({"path": Path("caf\udce9")})

    assert json.loads(out.getvalue()) == {"path": "caf\\udce9"}


def test_a_long_list_is_summed_up_and_a_file_holds_the_whole(tmp_path: Path) -> None:
    rows = [(f"layer {number}", number, "=1+1") for number in range(200)]
    console, out, _ = captured()
    console.listing(("name", "n", "note"), rows, right=("n",))
    shown = out.getvalue().splitlines()
    assert len(shown) == 22
    assert shown[-1] == "and 180 more: --csv FILE writes all 200"

    console, out, _ = captured()
    console.csv_path = tmp_path / "all.csv"
    console.listing(("name", "n", "note"), rows, right=("n",))
    written = console.csv_path.read_text().splitlines()
    assert len(written) == 201
    assert written[0] == "name,n,note"
    assert written[-1] == "layer 199,199,'=1+1", "no spreadsheet takes a name for a formula"
    assert out.getvalue().splitlines()[-1] == f"wrote 200 rows to {console.csv_path}"


def test_a_list_that_is_a_little_long_is_shown_whole() -> None:
    console, out, _ = captured()
    console.listing(("n",), [(number,) for number in range(25)])
    assert len(out.getvalue().splitlines()) == 26


@pytest.mark.parametrize("color", [True, False])
def test_a_narrow_terminal_says_what_it_leaves_out_with_colours_or_without(
    color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    console, out, _ = on_terminal(color=color)
    row = ("x" * 16, "14.3 ms", "some words")
    console.table(("name", "median", "what"), [row], right=("median",), spare=("median",))
    lines = out.getvalue().splitlines()
    assert lines[-2:] == [f"{'x' * 16}  some words", "(median is left out: the terminal is narrow)"]


def test_a_long_value_of_a_field_is_wrapped_below_itself_on_a_terminal() -> None:
    console, out, _ = on_terminal()
    console.fields([("模型", "net"), ("why", "many words " * 10)])
    lines = out.getvalue().splitlines()
    assert lines[0] == "模型  net"
    assert lines[1].startswith("why   many words")
    assert all(line.startswith("      ") for line in lines[2:])
    assert max(map(len, lines)) <= 60
