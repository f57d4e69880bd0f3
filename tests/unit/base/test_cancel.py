"""A token that ends work from another thread."""

from __future__ import annotations

import threading
import time

import pytest

from edgekit.base.cancel import Cancellation
from edgekit.base.errors import InterruptedByUserError
from edgekit.base.events import Event, Events, StageEnded


def test_work_that_waits_in_the_main_thread_ends_at_once() -> None:
    token = Cancellation()
    threading.Timer(0.05, token.cancel).start()

    with pytest.raises(InterruptedByUserError, match="cancelled"), token.ending():
        time.sleep(60)


def test_work_in_another_thread_ends_at_its_next_event() -> None:
    token = Cancellation()
    heard: list[Event] = []
    ended: list[BaseException] = []
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        events = token.listening(Events(heard.append))
        try:
            with token.ending(), events.stage("work"):
                begun.set()
                go_on.wait()
                events.note("never heard")
        except InterruptedByUserError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    token.cancel()
    go_on.set()
    thread.join()

    assert len(ended) == 1
    # The clean-up's events pass: a display can close its stage.
    assert isinstance(heard[-1], StageEnded) and heard[-1].failed
    assert len(heard) == 2


def test_a_cancelled_workspace_begins_nothing() -> None:
    token = Cancellation()
    token.cancel()

    with pytest.raises(InterruptedByUserError), token.ending():
        pytest.fail("the block began")


def test_ctrl_c_stays_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), Cancellation().ending():
        raise KeyboardInterrupt


def test_cancelling_after_the_work_interrupts_nothing() -> None:
    token = Cancellation()
    with token.ending():
        pass

    token.cancel()
    time.sleep(0)

    assert token.cancelled
