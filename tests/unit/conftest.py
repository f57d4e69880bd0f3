"""A rule for the unit tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

SLOW_TO_LOAD = {"tvm", "torch"}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Iterator[None]:
    """Refuse a module that loads a compiler: each process of the unit tests would wait for it."""
    before = SLOW_TO_LOAD & sys.modules.keys()
    report: pytest.CollectReport = yield  # type: ignore[misc]
    if loaded := (SLOW_TO_LOAD & sys.modules.keys()) - before:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} loads {', '.join(sorted(loaded))}, which takes seconds: "
            "its place is tests/integration"
        )
    return report  # type: ignore[return-value]
