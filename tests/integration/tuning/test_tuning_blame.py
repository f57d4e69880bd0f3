"""A candidate that ends a session is found, however late the others' times are reported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.building import CHECKOUT
from support.scripted_runner import FATAL

from edgekit.base.child import Child
from edgekit.base.events import SILENT
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import ProductChoice
from edgekit.tuning.batches import Batch
from edgekit.tuning.crew import Crew
from edgekit.tuning.messages import BatchOrder, BuiltBatch, BuiltFunction, Subject


class _Builder:
    """A builder that has built everything."""

    width = 1

    def __init__(self, built: BuiltBatch) -> None:
        self._built = built

    def ask(self, order: BatchOrder) -> BuiltBatch:
        return self._built

    def close(self) -> None:
        pass


@dataclass
class _Given:
    """A search of given batches."""

    batches: list[Batch]
    finished: list[Batch]
    is_late: bool = False

    def next(self) -> Batch | None:
        return self.batches.pop() if self.batches else None

    def finish(self, batch: Batch) -> None:
        self.finished.append(batch)


def test_a_better_candidate_is_not_blamed_for_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests"))
    output = TensorSpec("output", "float32", (1,))
    places = range(4)
    functions = tuple(BuiltFunction(place, f"f{place}", ()) for place in (-1, *places))
    choices = tuple(ProductChoice(unrolled=place + 2) for place in places)
    subject = Subject("k", "k", "", "", (), output)
    built = BuiltBatch(tmp_path / "batch.so", tmp_path, output, functions, ())
    batch = Batch(1, subject, choices, tmp_path / "batch", tmp_path)
    runner, builder = Child("support.scripted_runner"), _Builder(built)
    crew = Crew(builder, [runner], lambda taken: "board", SILENT)
    given, finished = [batch], []
    try:
        crew.run(_Given(given, finished))  # type: ignore[arg-type]
    finally:
        crew.close()

    assert finished == [batch]

    errors = {place: timed.error for place, timed in batch.timed.items()}
    assert errors == {place: "run" if place == FATAL else None for place in places}
    assert batch.device == "board"
