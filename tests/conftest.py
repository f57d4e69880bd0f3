"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support import needs
from support.examples import examples
from support.session import session

from edgekit.base.options import named_as_on_the_command_line

# Tests load onnxruntime themselves, not only through the oracle that asks for this.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# What a CI system, a terminal or a user sets changes what a command asks and how it writes.
for _name in ("CI", "COLUMNS", "LINES", "FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)

# The workers of pytest-xdist are of the session that started them.
_SESSION = ExitStack()
if "PYTEST_XDIST_WORKER" not in os.environ:
    _SESSION.enter_context(session())

    # What tests measure is no result of the user's.
    os.environ["EDGEKIT_STORE"] = "off"

    # What tests write into folders of their own is theirs: tests of trust itself take this away.
    os.environ["EDGEKIT_TRUSTED_PATH"] = "/"

# Messages name options as the command line does; tests/unit/base/test_options.py has both forms.
_SESSION.enter_context(named_as_on_the_command_line())

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program
# that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup does the same with what a terminal says when it goes.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no failure: no example has a time limit. And no run draws what another did not,
# so that a change is judged by its own doing: --hypothesis-profile=explore finds what is new.
_PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("edgekit", derandomize=True, max_examples=examples(100), **_PATIENT)
settings.register_profile("explore", derandomize=False, **_PATIENT)
settings.load_profile("edgekit")

_BEGINNINGS: dict[str, Any] = {}
"""The states of the modules' RANDOM when they were loaded."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if (random := _random_of(item)) is not None:
        _BEGINNINGS.setdefault(str(item.path), random.bit_generator.state)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files of long tests first and unit tests last.

    The processes that take file after file then end together.
    """
    long = {item.path for item in items if item.get_closest_marker("slow")}
    unit = Path(__file__).parent / "unit"
    items.sort(key=lambda item: (item.path.is_relative_to(unit), item.path not in long))


def pytest_collection_finish() -> None:
    """Spare Python the search for garbage among the million objects of the imported modules."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test before its fixtures are made if the machine lacks what it needs. Begin its random
    numbers anew, so that they do not depend on which tests ran before in this process."""
    needs.begin(item)
    if (random := _random_of(item)) is not None:
        random.bit_generator.state = _BEGINNINGS[str(item.path)]


def pytest_runtest_logfinish() -> None:
    needs.end()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Say last, after pytest's own summary, how many tests waited for what."""
    yield
    for line in needs.waiting(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line, yellow=True)


def pytest_unconfigure() -> None:
    _SESSION.close()


def _random_of(item: pytest.Item) -> Any:
    return getattr(getattr(item, "module", None), "RANDOM", None)
