"""Which choices were measured to be best, and what a build makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from edgekit.base.events import SILENT, Events
from edgekit.compiler.schedules.choices import EXACTLY, VERSION, Choice, Choices, choice_from_json
from edgekit.profiles.cpu import Target
from edgekit.project.file import store_in_use
from edgekit.store.lookup import best_records
from edgekit.store.tuning_runs import BestRecord

WORTH_IT = 0.97
"""Of the own choice's time: what is nearer is noise."""


@dataclass(frozen=True)
class TunedKernel:
    """One kernel on one kind of CPU: the best choice, and what the rule's own took beside it."""

    kernel: str
    """Its key: `compiler/schedules/kernels.py`."""
    choice: Choice
    best_us: float
    own_us: float
    words: str
    """What the kernel computes, for people."""
    device: str

    @property
    def gain(self) -> float:
        """1.2 where the rule's own choice takes a fifth more time."""
        return self.own_us / self.best_us if self.best_us else 1.0

    @property
    def is_own(self) -> bool:
        """Whether the rule's own choice stands: nothing was better by enough."""
        return self.choice == type(self.choice)() or self.best_us > WORTH_IT * self.own_us


def kept_under(target: Target, twin: bool) -> str:
    """Of what CPU times are kept: those of an emulated one are not those of a board."""
    return target.as_json() if not twin else json.dumps({"emulated": json.loads(target.as_json())})


def tuned_kernels(
    target: Target, url: str | None = None, events: Events = SILENT, *, twin: bool = False
) -> dict[str, TunedKernel]:
    """By kernel, those of a target, or of its twins, for the schedules as they are now."""
    best = best_records(kept_under(target, twin), VERSION, url or store_in_use(), events)
    found = {key: _tuned(record) for key, record in best.items()}
    return {key: kernel for key, kernel in found.items() if kernel is not None}


def measured_choices(
    target: Target, url: str | None = None, events: Events = SILENT, *, twin: bool = False
) -> Choices:
    """What a build should do otherwise than the rules would. For a `twin`, what was measured on
    twins counts too."""
    known = tuned_kernels(target, url, events)
    return choices_of({**known, **tuned_kernels(target, url, events, twin=True)} if twin else known)


def choices_of(kernels: dict[str, TunedKernel]) -> Choices:
    better = {key: kernel for key, kernel in kernels.items() if not kernel.is_own}
    return Choices(
        {key: kernel.choice for key, kernel in better.items() if not _is_beaten(key, better)}
    )


def _is_beaten(key: str, better: dict[str, TunedKernel]) -> bool:
    """A trace of a kernel whose product gains more by other parameters of its rule."""
    product, exactly, _ = key.partition(EXACTLY)
    if not exactly or product not in better:
        return False
    return better[product].gain >= better[key].gain


def _tuned(record: BestRecord) -> TunedKernel | None:
    """None for a choice of another edgekit, which this one can't make."""
    try:
        choice = choice_from_json(record.choice)
    except ValueError:
        return None
    own = record.best_us if record.own_us is None else record.own_us
    return TunedKernel(record.key, choice, record.best_us, own, record.words, record.device)
