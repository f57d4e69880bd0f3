"""Assertions about reports: the oracle's numbers, and no slower than earlier runs in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from edgekit.base.errors import EdgekitError, UsageError
from edgekit.base.wording import percent

if TYPE_CHECKING:
    from edgekit.store.comparing import Comparison
    from edgekit.verbs.bench_report import BenchReport
    from edgekit.verbs.verify import VerifyReport

Against = Literal["best", "previous"]
"""Which of the earlier runs a new one is compared with."""


def in_words(error: EdgekitError) -> str:
    """Return the sentence of an error, its details and its hint, a line each."""
    details = [detail for detail in error.details if detail not in error.message]
    hint = [f"hint: {error.hint}"] if error.hint else []
    return "\n".join([error.message, *details, *hint])


def assert_verified(report: VerifyReport) -> None:
    """Fail if the device's numbers are not the oracle's."""
    from edgekit.base.errors import VerificationError
    from edgekit.verbs.verify import raise_if_failed

    __tracebackhide__ = True
    try:
        raise_if_failed(report)
    except VerificationError as error:
        raise AssertionError(in_words(error)) from None


def assert_fast_enough(
    report: BenchReport,
    *,
    within: float = 0.05,
    against: Against = "best",
    store: str | None = None,
    hear: Callable[[str], None] = lambda words: None,
) -> Comparison | None:
    """Fail if a measurement is slower by more than a share than an earlier one in the store.

    It is compared with runs of the same model on the same board and device. Without any, the
    assertion holds, and returns None. `hear` is called with the result in words.
    """
    from edgekit.base.errors import NotComparableError, RegressionError
    from edgekit.store.results import compare_with_earlier, raise_if_regressed

    __tracebackhide__ = True
    if report.kept_as is None:
        raise UsageError(
            "the measurement is not in the store, so it can't be compared with earlier ones",
            hint="turn the store on: remove EDGEKIT_STORE=off, or name another store",
        )
    comparison = compare_with_earlier(report.kept_as, against, store)
    if comparison is None:
        hear(f"{report.headline()}; the first run of its kind in the store")
        return None
    found = f"{comparison.headline()}; {comparison.spread_in_words()}"
    hear(found)
    try:
        raise_if_regressed(comparison, within)
    except (NotComparableError, RegressionError) as error:
        earlier = f"the {against} earlier run: {comparison.before.headline()}"
        this = f"this run: {comparison.after.headline()}"
        allowed = f"{comparison.spread_in_words()}; {percent(within)} more is allowed"
        raise AssertionError("\n".join([in_words(error), earlier, this, allowed])) from None
    return comparison
