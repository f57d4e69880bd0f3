"""The gain that earlier searches bring to a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from edgekit.building.tuned_kernels import tuned_kernels

if TYPE_CHECKING:
    from edgekit.models.model import Model
    from edgekit.profiles.cpu import Target


@dataclass(frozen=True)
class EarlierGain:
    """The gain of a model's measured kernels on this kind of CPU, in one inference."""

    kernels: int
    """The number of distinct kernels of the model."""
    measured: int
    own_us: float
    """The time with the rules' own schedules."""
    best_us: float
    devices: tuple[str, ...]


def earlier_gain(model: Model, target: Target, store: str | None = None) -> EarlierGain | None:
    """Return the gain, None if no kernel of this model was measured."""
    measured = tuned_kernels(target, store)
    return gain_of(kernel_calls(model, target), measured) if measured else None


class MeasuredKernel(Protocol):
    @property
    def own_us(self) -> float: ...

    @property
    def best_us(self) -> float: ...

    @property
    def device(self) -> str: ...


def gain_of(calls: Mapping[str, int], measured: Mapping[str, MeasuredKernel]) -> EarlierGain | None:
    found = [(measured[key], times) for key, times in calls.items() if key in measured]
    if not found:
        return None
    return EarlierGain(
        len(calls),
        len(found),
        sum(record.own_us * times for record, times in found),
        sum(record.best_us * times for record, times in found),
        tuple(dict.fromkeys(record.device for record, _ in found)),
    )


def kernel_calls(model: Model, target: Target) -> Counter[str]:
    """Count how often each kernel runs, by its key."""
    import tvm

    from edgekit.backends.offloading import fused_for
    from edgekit.compiler.schedules.kernels import key_of
    from edgekit.tuning.kernels import calls_of

    module = fused_for(model, tvm.target.Target(target.as_json()))
    found: Counter[str] = Counter()
    for function, _, times in calls_of(module):
        found[key_of(function)] += times
    return found
