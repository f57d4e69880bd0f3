"""Child processes: messages both ways, and every way in which one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from support.building import CHECKOUT
from support.processes import command_lines
from support.rpc_lab import eventually
from support.source import PACKAGE

from edgekit.base import child as child_module
from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import EdgekitError, ModelError

ENDS_AT_ONCE = "platform"
LONG = 60.0

ALL_OF_EDGEKIT = sorted(
    ".".join(("edgekit", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if "channel = Channel()" in path.read_text(encoding="utf-8")
)
"""Every module that runs in a child process."""

START_ALL = """
import sys, time
from edgekit.base.child import Child
from edgekit.devices.local.device import worker_arguments
module, *arguments = worker_arguments()
children = [Child(name, *(arguments if name == module else [])) for name in sys.argv[1:]]
for child in children:
    child.start()
print(*[child.pid for child in children], flush=True)
time.sleep(600)
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests"))
    with Child("support.obedient_child") as started:
        yield started


def gone_after(child: Child, *message: object, seconds: float = LONG) -> ChildGone:
    with pytest.raises(ChildGone) as caught:
        child.ask(message, seconds)
    assert child.pid is None
    return caught.value


@pytest.mark.parametrize(
    "value",
    [None, b"", {"a": (1, [2.5, "ü"])}, np.arange(6.0).reshape(2, 3), b"x" * (20 << 20)],
    ids=["nothing", "empty", "nested", "array", "20 MiB"],
)
def test_a_message_comes_back_as_it_was(child: Child, value: object) -> None:
    answer = child.ask(("echo", value), LONG)

    if isinstance(value, np.ndarray):
        np.testing.assert_array_equal(answer, value)
    else:
        assert answer == value


def test_output_of_the_child_is_not_among_its_messages(child: Child) -> None:
    assert child.ask(("print", "noise\n"), LONG) == "printed"
    assert child.ask(("read",), LONG) == ""
    assert child.ask(("echo", 1), LONG) == 1
    child.close()
    assert child.lines == ("noise", "noise")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_signal_is_named(child: Child, number: signal.Signals) -> None:
    gone = gone_after(child, "signal", number)

    assert gone.code == -number
    assert gone.reason.startswith(number.name)
    assert not gone.silent


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_has_its_code_and_its_last_words(child: Child, code: int) -> None:
    gone = gone_after(child, "exit", code)

    assert (gone.code, gone.reason, gone.lines) == (code, "the last words", ("the last words",))


def test_half_a_message_is_none(child: Child) -> None:
    assert gone_after(child, "part").code == 0


def test_a_silent_child_is_killed(child: Child) -> None:
    child.ask(("echo", 1), LONG)
    pid = child.pid

    gone = gone_after(child, "hang", seconds=0.2)

    assert gone.silent
    assert gone.code is None
    assert pid not in command_lines()


def test_a_message_that_is_not_taken_in_time_ends_the_child(child: Child) -> None:
    child.send(("hang",))

    with pytest.raises(ChildGone) as caught:
        child.write([bytes(1 << 20)], child.deadline(0.2))

    assert caught.value.silent


def test_a_child_that_closes_its_pipes_and_stays_is_killed(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_SECONDS_TO_DIE", 1)
    child.ask(("echo", 1), LONG)
    pid = child.pid

    assert gone_after(child, "close").code is None
    assert pid not in command_lines()


@pytest.mark.parametrize("how", ["close", "crash"])
def test_the_group_of_a_child_ends_with_it(child: Child, how: str) -> None:
    grandchild = child.ask(("fork",), LONG)
    eventually(lambda: grandchild in command_lines())

    if how == "close":
        child.close()
    else:
        gone_after(child, "signal", signal.SIGSEGV)

    eventually(lambda: grandchild not in command_lines())


def test_an_error_arrives_as_it_was(child: Child) -> None:
    with pytest.raises(ModelError, match="it is broken") as caught:
        child.ask(("fail",), LONG)

    assert (caught.value.hint, caught.value.details) == ("mend it", ("a", "b"))
    assert "Traceback" in str(caught.value.__cause__)
    assert child.ask(("echo", 1), LONG) == 1


def test_an_unexpected_error_is_a_bug(child: Child) -> None:
    with pytest.raises(EdgekitError, match="this is a bug in edgekit: KeyError: 'x'"):
        child.ask(("bug",), LONG)


def test_a_child_that_ended_is_gone_and_the_next_message_starts_another() -> None:
    with Child(ENDS_AT_ONCE) as child:
        child.start()
        first = child.pid
        assert first is not None
        # Its command line is gone before its pipes are closed.
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ChildGone):
            child.send("a message without a reader")
        assert child.pid is None
        child.start()
        assert child.pid not in (None, first)


def test_a_child_that_is_closed_while_it_starts_does_not_stay() -> None:
    class ClosedMeanwhile(Child):
        def _start(self) -> None:
            self.close()  # as another thread may
            super()._start()

    child = ClosedMeanwhile(ENDS_AT_ONCE)
    with pytest.raises(ChildGone, match="closed"):
        child.start()
    assert child.pid is None


def test_every_child_ends_with_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_ALL, *ALL_OF_EDGEKIT], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()

    assert len(pids) == len(ALL_OF_EDGEKIT) >= 8
    eventually(lambda: not set(pids) & command_lines().keys())


def test_every_child_ends_when_its_pipe_is_closed() -> None:
    from edgekit.devices.local.device import worker_arguments

    module, *arguments = worker_arguments()
    for name in ALL_OF_EDGEKIT:
        with Child(name, *(arguments if name == module else [])) as child:
            child.start()
            process = child._running()
            assert process.stdin is not None
            process.stdin.close()
            eventually(lambda: process.poll() is not None)  # noqa: B023
