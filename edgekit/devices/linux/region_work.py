"""Progress messages of regions that do something slow, such as building an engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

from edgekit.base.decode import Convert, decode
from edgekit.base.events import Events, Stage
from edgekit.base.wording import printable

WORKING = "working"
"""Key of such a message, whose value is a sentence."""
_LONGEST = 160
_Sentence = Annotated[str, Convert("a sentence", lambda said: printable(str(said))[:_LONGEST])]


@dataclass(frozen=True)
class Working:
    """The message of a region that does something slow."""

    working: _Sentence


def working_in(message: Mapping[str, object]) -> Working | None:
    """Return the message of a region, if this is one."""
    return decode(Working, message, ignore_unknown=True) if WORKING in message else None


class WorkShown:
    """Shows those sentences as a stage while they follow one another."""

    def __init__(self, events: Events, device: str) -> None:
        self._events = events
        self._device = device
        self._open = ExitStack()
        self._stage: Stage | None = None

    def __enter__(self) -> WorkShown:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def hear(self, message: object) -> None:
        """Show a region's message; any other ends the stage."""
        if not isinstance(message, Working):
            self._stage = None
            self._open.close()
            return
        if self._stage is None:
            stage = self._events.stage(f"prepare the model on {self._device}")
            self._stage = self._open.enter_context(stage)
        self._stage.advance(0, message.working)
