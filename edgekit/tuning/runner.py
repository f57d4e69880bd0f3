"""The process that measures on devices: it gets one from a tracker and times batch after batch.

It names every candidate before it is measured, so that the search knows which one was under way at
a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.base.child import Channel
from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import number
from edgekit.rpc.protocol import Assigned
from edgekit.rpc.session import Claim, SessionLost, open_session
from edgekit.tuning.messages import (
    FAR,
    SPOIL,
    BatchDone,
    Begun,
    BuiltBatch,
    BuiltFunction,
    ErrorKind,
    RunnerSetup,
    SessionEnded,
    Taken,
    Timed,
)
from edgekit.tuning.statistics import is_better, typical

_KEPT_WITHOUT_WORK = 0.5
"""Seconds until an idle device is given back."""
_FAR_APART = 1e-9
"""The largest relative squared error; reordered single precision stays far below."""
_HOPELESS = 1.6
"""The ratio to the rule's own time above which one run is enough."""
_PROMISING = 1.08
_SECONDS_A_REPEAT = 0.004
_REPEATS, _MORE_REPEATS = 5, 9
_ROUNDS = 3
"""Rounds in turn with the rule's own way that confirm a better candidate."""
_MOST_RUNS = 10_000


def main() -> None:
    channel = Channel()
    setup = channel.next()
    assert isinstance(setup, RunnerSetup)
    load_tvm()
    holder = _Holder(setup, channel)
    while True:
        if holder.held and not channel.waiting(_KEPT_WITHOUT_WORK):
            holder.give_back()
        batch = channel.next()
        assert isinstance(batch, BuiltBatch)
        try:
            holder.device().measure(batch, channel.send)
        except DeviceError as error:
            began = holder.held
            holder.give_back()
            channel.send(SessionEnded(error.message, began))


def is_as_right(apart: float) -> bool:
    """Return whether a relative squared error is small enough; NaN is not."""
    return apart <= _FAR_APART


class _Holder:
    """Holds a device for a limited time, so that others get their turn."""

    def __init__(self, setup: RunnerSetup, channel: Channel) -> None:
        self._setup = setup
        self._channel = channel
        self._closing = ExitStack()
        self._device: _Device | None = None
        self._until = 0.0

    @property
    def held(self) -> bool:
        return self._device is not None

    def device(self) -> _Device:
        if self._device is not None and time.monotonic() > self._until:
            self.give_back()
        if self._device is None:
            self._open()
        assert self._device is not None
        return self._device

    def give_back(self) -> None:
        self._device = None
        try:
            self._closing.close()
        except EdgekitError:
            return  # the session had ended already
        finally:
            self._closing = ExitStack()

    def _open(self) -> None:
        setup = self._setup

        def taken(assigned: Assigned) -> None:
            self._channel.send(Taken(assigned.port, assigned.match_key))

        session = self._closing.enter_context(
            open_session(
                setup.key,
                # Longer than it is held, so that a started batch can finish.
                2 * setup.session_seconds,
                tracker=setup.tracker,
                wait=setup.wait_seconds,
                claim=Claim(setup.priority, taken),
            )
        )
        self._device = _Device(session)
        self._until = time.monotonic() + setup.session_seconds


@dataclass
class _Device:
    session: Any
    _folder: Path | None = None
    _inputs: dict[str, Any] = field(default_factory=dict)
    _libraries: int = 0

    def next_name(self) -> str:
        """Return a new library name: TVM's own server crashes if a loaded file changes."""
        self._libraries += 1
        return f"batch{self._libraries}.so"

    def measure(self, batch: BuiltBatch, say: Callable[[object], None]) -> None:
        from tvm.error import InternalError, RPCError

        try:
            _Measuring(self, batch, say).run()
        except (InternalError, RPCError) as error:
            raise SessionLost(
                f"the session was lost: {str(error).strip().splitlines()[-1][:200]}",
                hint="leave out the candidate that crashes it",
            ) from error

    def input(self, folder: Path, name: str) -> Any:
        """Return an input on the device. Only one kernel's inputs are kept: they may be large."""
        import numpy as np
        import tvm

        if folder != self._folder:
            self._inputs.clear()
            self._folder = folder
        if name not in self._inputs:
            array = np.load(folder / f"{name}.npy", allow_pickle=False)
            self._inputs[name] = tvm.runtime.tensor(array, self.session.cpu(0))
        return self._inputs[name]

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        import tvm

        return tvm.runtime.empty(shape, dtype, self.session.cpu(0))


class _Measuring:
    def __init__(self, device: _Device, batch: BuiltBatch, say: Callable[[object], None]) -> None:
        self._device = device
        self._batch = batch
        self._say = say
        name = device.next_name()
        device.session.upload(str(batch.library), name)
        self._module = device.session.load_module(name)
        output = batch.output
        self._expected, self._result = (device.empty(output.shape, output.dtype) for _ in range(2))
        self._apart = device.empty((1,), "float32")

    def run(self) -> None:
        own, *others = self._batch.functions
        one = self._one_run(own, self._expected)
        first = self._timed(own, self._expected, one, _MORE_REPEATS)
        self._say(Timed(-1, first))
        if not others:
            self._say(BatchDone(first, first))
            return
        better: list[tuple[float, BuiltFunction]] = []
        for function in others:
            self._say(Begun(function.place))
            timed = self._candidate(function, first)
            if timed.microseconds is not None and is_better(timed.microseconds, first):
                better.append((timed.microseconds, function))
                continue
            self._say(timed)
        # Most single improvements are noise: each is confirmed in turn with the rule's own way.
        for microseconds, function in sorted(better, key=lambda item: item[0]):
            self._say(Begun(function.place))
            self._say(Timed(function.place, self._in_turns(own, function, microseconds, first)))
        self._say(Begun(own.place))
        last = self._timed(own, self._expected, first, _MORE_REPEATS)
        self._say(BatchDone(first, last))

    def _candidate(self, function: BuiltFunction, own: float) -> Timed:
        self._call(SPOIL, self._result)
        try:
            one = self._one_run(function, self._result)
        except RuntimeError as error:
            return self._failed(function, "run", str(error))
        self._call(FAR, self._expected, self._result, self._apart)
        apart = float(self._apart.numpy()[0])
        if not is_as_right(apart):
            return Timed(function.place, None, "numbers", f"apart by {number(apart)}")
        if one > _HOPELESS * own:
            return Timed(function.place, one)
        microseconds = self._timed(function, self._result, one, _REPEATS)
        if microseconds < _PROMISING * own:
            microseconds = self._timed(function, self._result, microseconds, _MORE_REPEATS)
        return Timed(function.place, microseconds)

    def _failed(self, function: BuiltFunction, kind: ErrorKind, said: str) -> Timed:
        """Return the failure, or raise SessionLost if the session has ended."""
        from tvm.error import InternalError, RPCError

        try:
            self._call(SPOIL, self._result)
        except (InternalError, RPCError) as error:
            raise SessionLost(said[-200:] or "the session was lost", hint=None) from error
        lines = said.strip().splitlines() or ["it said nothing"]
        return Timed(function.place, None, kind, lines[-1][:300])

    def _in_turns(
        self, own: BuiltFunction, function: BuiltFunction, microseconds: float, first: float
    ) -> float:
        """Return the time, scaled to a time of the rule's own way of `first`."""
        relative = []
        for _ in range(_ROUNDS):
            own_time = self._timed(own, self._expected, first, _REPEATS)
            relative.append(self._timed(function, self._result, microseconds, _REPEATS) / own_time)
        return typical(relative) * first

    def _one_run(self, function: BuiltFunction, result: Any) -> float:
        """Return the microseconds of one run after a warm-up run."""
        return self._evaluated(function, result, 1, 1)[0]

    def _timed(self, function: BuiltFunction, result: Any, guess: float, repeats: int) -> float:
        number = max(1, min(_MOST_RUNS, int(_SECONDS_A_REPEAT * 1e6 / max(guess, 0.01))))
        return typical(self._evaluated(function, result, number, repeats))

    def _evaluated(
        self, function: BuiltFunction, result: Any, number: int, repeats: int
    ) -> list[float]:
        evaluator = self._module.time_evaluator(
            function.symbol, self._device.session.cpu(0), number=number, repeat=repeats
        )
        arguments = [self._device.input(self._batch.inputs, name) for name in function.arguments]
        seconds = evaluator(*arguments, result).results
        return [max(second * 1e6, 1e-3) for second in seconds]

    def _call(self, symbol: str, *arguments: Any) -> None:
        self._module[symbol](*arguments)


if __name__ == "__main__":
    main()
