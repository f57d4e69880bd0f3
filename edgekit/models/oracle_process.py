"""Runs oracles in a child process: native code that crashes in one ends no command of edgekit.

One process serves all oracles of a caller, so that Python and a runtime start once. A call holds
what opens its oracle, and the process opens it if it is a new one.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from edgekit.base.arrays import Array
from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import EdgekitError, ModelError
from edgekit.base.options import option
from edgekit.models.comparison import Leeway
from edgekit.models.model import ModelSource
from edgekit.models.oracle_types import Oracle

Engine = Callable[[ModelSource], Oracle]
"""The class of an oracle."""
Start = Callable[[Engine, ModelSource], Oracle]
"""A way to run an oracle: `ChildOracle`, or `in_this_process`."""


@dataclass(frozen=True)
class Call:
    """A call of an oracle in the child process."""

    number: int
    """The oracle's."""
    engine: Engine
    source: ModelSource
    method: str | None
    """None only opens the oracle."""
    arguments: tuple[Any, ...]
    dropped: tuple[int, ...]
    """Oracles that are no longer needed."""


_numbers = count()
_dropped: deque[int] = deque()
_asking = threading.Lock()
_children: dict[int, Child] = {}
"""The process that runs the oracles of this process, by the id of this one: a fork has its own."""


def in_this_process(engine: Engine, source: ModelSource) -> Oracle:
    return engine(source)


class ChildOracle:
    """An oracle in the child process."""

    def __init__(self, engine: Engine, source: ModelSource) -> None:
        self._engine = engine
        self._source = replace(source, path=source.path.absolute())
        self._number = next(_numbers)
        self.name: str = engine.name  # type: ignore[attr-defined]
        self.version = ""
        weakref.finalize(self, _dropped.append, self._number)
        self.version = self._ask(None)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs: dict[str, Array] = self._ask("run", inputs)
        return outputs

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        found: Mapping[str, Leeway] = self._ask("leeways", inputs, outputs)
        return found

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        seconds: list[float] = self._ask("time", inputs, threads, runs)
        return seconds

    def _ask(self, method: str | None, *arguments: Any) -> Any:
        with _asking:
            dropped = tuple(_dropped.popleft() for _ in range(len(_dropped)))
            call = Call(self._number, self._engine, self._source, method, arguments, dropped)
            child = _child()
            try:
                return child.ask(call)
            except ChildGone as gone:
                named = f"{self.name} {self.version}".rstrip()
                raise ModelError(
                    f"{named} crashed while it {'ran' if method else 'opened'} the model: "
                    f"{gone.reason}",
                    hint=f"{option('no-verify')} builds it without expected outputs",
                    details=gone.lines[-8:],
                ) from gone
            except EdgekitError:
                raise
            except BaseException:  # such as Ctrl-C: the answer would be taken for the next call's
                child.end()
                raise


def _child() -> Child:
    """Return the process, without one that has ended: it ends with the thread that started it."""
    own = os.getpid()
    if own not in _children:
        _children[own] = Child("edgekit.models.oracle_worker")
        atexit.register(_end, own)
    child = _children[own]
    if child.pid is not None:
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        if os.waitid(os.P_PID, child.pid, how) is not None:
            child.end()
    return child


def _end(owner: int) -> None:
    if os.getpid() == owner:
        _children[owner].close()
