"""Reads the kernels' best measured choices from the store for a build."""

from __future__ import annotations

import json
from dataclasses import dataclass

from edgekit.base.events import SILENT, Events
from edgekit.compiler.schedules.choices import EXACTLY, VERSION, Choice, Choices, choice_from_json
from edgekit.profiles.cpu import Target
from edgekit.store.lookup import best_records
from edgekit.store.tuning_runs import BestRecord

WORTH_IT = 0.97
"""The largest share of the rule's own time that counts as faster; anything nearer is noise."""


@dataclass(frozen=True)
class TunedKernel:
    """The best choice of a kernel on one kind of CPU, and the time of the rule's own choice."""

    kernel: str
    """The kernel's key (`compiler/schedules/kernels.py`)."""
    choice: Choice
    best_us: float
    own_us: float
    words: str
    """A description of what the kernel computes."""
    device: str

    @property
    def gain(self) -> float:
        """The speed-up: 1.2 if the rule's own choice takes a fifth more time."""
        return self.own_us / self.best_us if self.best_us else 1.0

    @property
    def is_own(self) -> bool:
        """Whether the rule's own choice stands, because nothing was faster by enough."""
        return self.choice == type(self.choice)() or self.best_us > WORTH_IT * self.own_us


def record_target(target: Target, twin: bool) -> str:
    """Return the target under which times are recorded. An emulated CPU has its own."""
    return target.as_json() if not twin else json.dumps({"emulated": json.loads(target.as_json())})


def tuned_kernels(
    target: Target, url: str | None = None, events: Events = SILENT, *, twin: bool = False
) -> dict[str, TunedKernel]:
    """Return a target's tuned kernels by key, or those of its twins, for today's schedules."""
    best = best_records(record_target(target, twin), VERSION, url, events)
    found = {key: _tuned(record) for key, record in best.items()}
    return {key: kernel for key, kernel in found.items() if kernel is not None}


def measured_choices(
    target: Target, url: str | None = None, events: Events = SILENT, *, twin: bool = False
) -> Choices:
    """Return the choices that replace the rules' own. For a `twin`, those of twins count too."""
    choices = choices_of(tuned_kernels(target, url, events))
    if not twin:
        return choices
    # A gain on a twin is not weighed against one on a board: where both are known, the twin's.
    on_twins = tuned_kernels(target, url, events, twin=True)
    others = {key: one for key, one in choices.of_kernel.items() if key not in on_twins}
    return Choices({**others, **choices_of(on_twins).of_kernel})


def choices_of(kernels: dict[str, TunedKernel]) -> Choices:
    better = {key: kernel for key, kernel in kernels.items() if not kernel.is_own}
    return Choices(
        {key: kernel.choice for key, kernel in better.items() if not _is_beaten(key, better)}
    )


def _is_beaten(key: str, better: dict[str, TunedKernel]) -> bool:
    """Return whether `key` is a trace of a kernel that gains more by its rule's parameters."""
    product, exactly, _ = key.partition(EXACTLY)
    if not exactly or product not in better:
        return False
    return better[product].gain >= better[key].gain


def _tuned(record: BestRecord) -> TunedKernel | None:
    """Read a record; None if its choice is one that this version of edgekit can't make."""
    try:
        choice = choice_from_json(record.choice)
    except ValueError:
        return None
    own = record.best_us if record.own_us is None else record.own_us
    return TunedKernel(record.key, choice, record.best_us, own, record.words, record.device)
