"""A process that works for a search may be gone whenever it is spoken to."""

from __future__ import annotations

import os

import pytest

from edgekit.tuning.child import Child, ChildGone

ENDS_AT_ONCE = "platform"


def test_one_that_ended_unheard_is_gone_and_the_next_message_starts_another() -> None:
    child = Child(ENDS_AT_ONCE)
    try:
        child.start()
        first = child.pid
        assert first is not None
        # Its command line is gone before its pipes are closed.
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ChildGone):
            child.send("what nobody reads")
        assert child.pid is None
        child.start()
        assert child.pid not in (None, first)
    finally:
        child.close()


def test_one_that_is_closed_while_it_is_being_started_does_not_stay() -> None:
    class ClosedMeanwhile(Child):
        def _start(self) -> None:
            self.close()  # another thread's doing
            super()._start()

    child = ClosedMeanwhile(ENDS_AT_ONCE)
    with pytest.raises(ChildGone, match="over"):
        child.start()
    assert child.pid is None
