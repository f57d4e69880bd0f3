"""A signal that comes at a bad moment is neither lost nor early."""

from __future__ import annotations

import signal
import threading

import pytest

from edgekit.base.interrupts import interrupts_deferred


def test_ctrl_c_comes_after_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        reached.append("the end of the block")
    assert reached == ["the end of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failure_in_the_block_is_not_hidden_and_handlers_are_restored() -> None:
    with pytest.raises(ValueError), interrupts_deferred():
        raise ValueError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_it_does_nothing() -> None:
    done = []

    def work() -> None:
        with interrupts_deferred():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]
