"""Messages of regions: the progress of something slow, such as building an engine, and how they
run, such as on which GPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any

from edgekit.base.decode import Convert, decode
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.wording import printable

WORKING = "working"
"""Key of such a message, whose value is a sentence."""
_NOTE, _WARNING = "note: ", "warning: "
"""What begins a message that says how a region runs (edgekit_tell.h)."""
_MOST_TOLD = 100
_LONGEST = 200
_Sentence = Annotated[str, Convert("a sentence", lambda said: printable(str(said))[:_LONGEST])]


@dataclass(frozen=True)
class Working:
    """The message of a region."""

    working: _Sentence

    @property
    def tells(self) -> bool:
        """Whether it says how the region runs."""
        return self.working.startswith((_NOTE, _WARNING))


def working_in(message: Mapping[str, object]) -> Working | None:
    """Return the message of a region, if this is one."""
    return decode(Working, message, ignore_unknown=True) if WORKING in message else None


@dataclass
class Told:
    """What the regions of a session said of how they run, each sentence once."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """The sentences of regions that do not run where the model was built for."""

    def hear(self, message: Working, events: Events) -> None:
        is_warning = message.working.startswith(_WARNING)
        text = message.working.removeprefix(_WARNING).removeprefix(_NOTE)
        known = self.warnings if is_warning else self.notes
        if text in known or len(known) >= _MOST_TOLD:
            return
        known.append(text)
        if is_warning:
            events.warn(text)
        else:
            events.note(text)


class WorkShown:
    """Shows progress as a stage while its sentences follow one another, and each sentence that
    tells how a region runs once for all who share `told`. It is only kept there unless `aloud`."""

    def __init__(
        self, events: Events, device: str, told: Told | None = None, *, aloud: bool = True
    ) -> None:
        self._events = events
        self._heard_by = events if aloud else SILENT
        self._device = device
        self._told = Told() if told is None else told
        self._open = ExitStack()
        self._stage: Stage | None = None

    def __enter__(self) -> WorkShown:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def hear(self, message: object) -> None:
        """Show a region's message; any other ends the stage."""
        if isinstance(message, Working) and message.tells:
            self._told.hear(message, self._heard_by)
            return
        if not isinstance(message, Working):
            self._stage = None
            self._open.close()
            return
        if self._stage is None:
            stage = self._events.stage(f"prepare the model on {self._device}")
            self._stage = self._open.enter_context(stage)
        self._stage.advance(0, message.working)
