"""Tuning sessions as the farm's page, its metrics and the command line tell them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores import a_point, a_session

from edgekit.farm.web.prometheus import tuning_metrics
from edgekit.farm.web.server import token_file, web_token
from edgekit.farm.web.tuning_page import session_page, sessions_part, tuning_page
from edgekit.pictures.tuning import tuning_part
from edgekit.store.moments import now
from edgekit.store.tuning_results import SessionCurve, SessionReport, SessionSummary
from edgekit.store.tuning_runs import KernelSearch


def curve(count: int) -> tuple[SessionCurve, ...]:
    return (SessionCurve(a_session(), tuple(a_point(number) for number in range(count))),)


def test_a_curve_falls_from_what_the_rules_take() -> None:
    values = tuning_part(curve(1000)).charts[0].spec["data"]["values"]
    best = [row["time"] for row in values if row["line"] == "best so far"]
    own = {row["time"] for row in values if row["line"] != "best so far"}

    assert len(best) == 300
    assert best == sorted(best, reverse=True), "lower is faster"
    assert own == {1.0}
    assert sessions_part(curve(1000)).count('class="chart"') == 1


def test_a_session_opens_with_its_kernels_and_failures() -> None:
    ((_, points),) = ((one.session, one.curve) for one in curve(3))
    kernel = KernelSearch("key", "<b>product</b>", 9, 1, 50.0, 100.0, None)
    shown = session_page(SessionReport(a_session(), points, (kernel,), {"timeout": 1}))

    assert "&lt;b&gt;product&lt;/b&gt;" in shown
    assert ">50 µs</td>" in shown
    assert ">timeout</td><td role='cell' data-name='count' class=n>1</td>" in shown
    assert f"/session?id={a_session().id}'" in sessions_part(curve(1))


@pytest.mark.parametrize("count", [0, 1])
def test_a_session_that_has_only_begun_has_a_row_and_no_curve(count: int) -> None:
    part = sessions_part(curve(count))
    assert "net" in part
    assert 'class="chart"' not in part


def test_nothing_tuned_is_said() -> None:
    assert "Nothing was tuned yet" in tuning_page(())


def test_what_is_left_follows_from_time_and_trials() -> None:
    by_time = a_session(wanted_trials=None, wanted_seconds=1e5)
    assert "1 d 4 h" in sessions_part((SessionCurve(by_time, ()),))
    over = a_session(state="done", ended_at=now(), wanted_seconds=1e5)
    assert "1 d 4 h" not in sessions_part((SessionCurve(over, ()),))


def test_metrics_tell_where_sessions_stand_and_whether_the_store_answers() -> None:
    running = (
        SessionSummary(a_session(model='a"b'), a_point(4)),
        SessionSummary(a_session(), None),
    )
    text = tuning_metrics(running)
    assert "edgekit_store_up 1\n" in text
    assert "edgekit_tuning_sessions 2\n" in text
    assert 'model="a\\"b",board="rpi4",measured_by="hardware"} 32\n' in text
    assert text.count("edgekit_tuning_trials_total{") == 1
    assert "edgekit_store_up 0\n" in tuning_metrics(None)


def test_instructions_are_no_seconds_in_metrics_or_on_the_page() -> None:
    counted = a_session(state="done", ended_at=now(), measured_by="emulator", unit="instructions")
    point = a_point(1, own_us=2000.0, best_us=1500.0)
    text = tuning_metrics([SessionSummary(counted, point)])
    labels = f'{{session="{counted.id}",model="net",board="rpi4",measured_by="emulator"}}'
    assert f"edgekit_tuning_own_instructions{labels} 2000000.0\n" in text
    assert f"edgekit_tuning_best_instructions{labels} 1500000.0\n" in text
    assert "edgekit_tuning_own_seconds{" not in text
    part = sessions_part((SessionCurve(counted, (point, a_point(2, best_us=1500.0))),))
    assert "1,500,000 instructions" in part
    assert ">1 ms" not in part


def test_the_page_says_that_a_search_was_on_an_emulator() -> None:
    emulated = a_session(measured_by="emulator")
    assert "1 ms emulated" in sessions_part((SessionCurve(emulated, (a_point(1),)),))
    unknown = a_session(measured_by=None)
    assert "1 ms of unknown origin" in sessions_part((SessionCurve(unknown, (a_point(1),)),))
    text = tuning_metrics([SessionSummary(unknown, a_point(1))])
    assert 'measured_by="unknown"} 0.001\n' in text


def test_a_token_that_others_could_have_read_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    first = web_token()
    assert web_token() == first
    token_file().chmod(0o644)
    second = web_token()
    assert second != first
    assert token_file().stat().st_mode & 0o777 == 0o600
    for text in ("", "short", "x" * 1000, "../../etc/passwd" * 2, "ü" * 32):
        token_file().write_text(text, encoding="utf-8")
        token_file().chmod(0o600)
        assert len(web_token()) == 32
        assert web_token() == web_token() != text
