"""A candidate that ends a session is found, however late the others' times are reported."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest
from support.building import CHECKOUT
from support.scripted_runner import FATAL

from edgekit.base.tensors import TensorSpec
from edgekit.compiler.schedules.choices import ProductChoice
from edgekit.tuning.child import Child
from edgekit.tuning.crew import Batch, Crew, DeviceNews, Fault
from edgekit.tuning.work import BuiltBatch, BuiltFunction, Subject


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
    batch = Batch(1, subject, choices, tmp_path, tmp_path, built)
    heard: queue.Queue[Batch | DeviceNews | Fault] = queue.Queue()
    runner = Child("support.scripted_runner")
    crew = Crew([], [runner], heard.put, lambda taken: "board")
    try:
        crew.measure_again(batch)
        assert heard.get(timeout=300) is batch
    finally:
        crew.close()

    errors = {place: timed.error for place, timed in batch.timed.items()}
    assert errors == {place: "run" if place == FATAL else None for place in places}
    assert batch.device == "board"
