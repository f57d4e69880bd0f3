"""Runs survive the way through a file; anything else in a file is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import a_run

from edgekit.base.errors import EdgekitError, InputError
from edgekit.store.address import waiting
from edgekit.store.bench_runs import pack, unpack
from edgekit.store.documents import from_document, written_document
from edgekit.store.outbox import DAMAGED, post
from edgekit.store.runs import BenchRun

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def to_document(runs: Iterable[BenchRun]) -> Any:
    return json.loads("".join(written_document(runs)))


def test_a_run_comes_back_as_it_was() -> None:
    runs = (a_run(1), a_run(2, joules=0.25, model_peak=None))
    assert from_document(to_document(runs)) == runs


@given(JSON)
def test_whatever_else_a_file_holds_is_refused_in_a_sentence(document: object) -> None:
    with pytest.raises(InputError):
        from_document(document)


@given(st.data())
def test_a_field_that_holds_something_else_is_named(data: st.DataObject) -> None:
    document = to_document((a_run(1),))
    (run,) = document["bench_runs"]
    place = data.draw(st.sampled_from(["run", "build", "conditions"]))
    table = run if place == "run" else run[place]
    key = data.draw(st.sampled_from(sorted(table)))
    before = copy.deepcopy(table[key])
    table[key] = data.draw(JSON)
    try:
        (back,) = from_document(document)
    except EdgekitError as error:
        assert "\n" not in error.message
        assert error.hint
    else:  # something of the same kind, or an optional one left out
        assert to_document((back,))["bench_runs"][0].keys() == run.keys()
        assert before is None or table[key] is None or type(table[key]) in (type(before), int, list)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "../../etc/passwd"),
        ("measured_at", "yesterday"),
        ("samples", [1 << 64]),
        ("median", 10**400),
        ("warmup", 1 << 31),
        ("model_peak", 1 << 63),
        ("device", "half a pair: \ud800"),
        ("device", "x" * 201),
        ("notes", ["a NUL: \0"]),
    ],
)
def test_names_times_and_numbers_have_their_form(key: str, value: object) -> None:
    document = to_document((a_run(1),))
    document["bench_runs"][0][key] = value
    with pytest.raises(InputError, match=key):
        from_document(document)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=300))
def test_packed_samples_come_back(samples: list[int]) -> None:
    assert unpack(pack(samples)) == tuple(samples)


@given(st.binary(max_size=60))
def test_samples_of_a_damaged_store_are_an_error_and_no_crash(data: bytes) -> None:
    try:
        unpack(data)
    except InputError as error:
        assert "damaged" in (error.hint or "")


def test_a_file_that_waits_is_there_at_once_and_whole(tmp_path: Path) -> None:
    path = post(a_run(7), tmp_path / "outbox")
    assert waiting(tmp_path / "outbox") == (path,)
    assert json.loads(path.read_text())["id"] == a_run(7).id
    assert not list((tmp_path / "outbox").glob(f"*{DAMAGED}"))
