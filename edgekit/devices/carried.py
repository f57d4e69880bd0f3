"""The state of a model between the calls of one run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import RunResult, Session


class CarriedState:
    """Completes each call's inputs with the state that the call before left.

    The first call begins with the first values, which the bundle's usual vector holds. With `kept`
    false, every call does.
    """

    def __init__(self, bundle: Bundle, *, kept: bool = True) -> None:
        specs = [entry.spec for entry in bundle.manifest.inputs]
        self.following = {spec.name: spec.state for spec in specs if spec.state is not None}
        """The output that each input takes."""
        first = bundle.reference_inputs() if self.following else {}
        self._values: dict[str, Array] = {name: first[name] for name in self.following}
        self._kept = kept

    def complete(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the inputs with the state; what they say of it themselves counts."""
        return {**self._values, **inputs}

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Take the state of the next call from the outputs of this one."""
        if self._kept:
            self._values = {name: outputs[output] for name, output in self.following.items()}


def run_in_order(
    session: Session, samples: Iterable[Mapping[str, Array]], state: CarriedState
) -> Generator[RunResult, None, None]:
    """Run one sample after another, each with the state that the one before left."""
    if not state.following:
        yield from session.run_all(samples)
        return
    for sample in samples:
        result = session.run(state.complete(sample))
        state.keep(result.outputs)
        yield result
