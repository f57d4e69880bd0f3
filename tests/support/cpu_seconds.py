"""CPU seconds of each test and of the processes that it started and waited for, the largest last:

    python -m pytest -p support.cpu_seconds FILE

They say what a test costs on a busy machine too, where its duration says nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

_SPENT: Counter[str] = Counter()
_SHOWN = 40


def _seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _seconds()
    result = yield
    _SPENT[item.nodeid] += round(_seconds() - before, 1)  # type: ignore[assignment]
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for name, seconds in reversed(_SPENT.most_common(_SHOWN)):
        terminalreporter.write_line(f"{seconds:8.1f} s CPU  {name}")
    terminalreporter.write_line(f"{sum(_SPENT.values()):8.1f} s CPU in all")
