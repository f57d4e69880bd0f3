"""What is read as JSON can be converted and shown without another check; all else is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.json_reader import DEPTH_LIMIT, JsonError, read_json, read_json_object

WHOLE = st.integers(-(2**63), 2**64 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | WHOLE | REAL | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"[" * (DEPTH_LIMIT + 2) + b"]" * (DEPTH_LIMIT + 2),
        b"1e999",
        b"-1e999",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1" * 5000,
        b"-" + b"9" * 400,
        b'"\\ud800"',
        b'{"\\udc00": 1}',
        b'["\xed\xa0\x80"]',
        b"\xff\xfe1\x00",
        b"\xef\xbb\xbf1",
        b'{"a": 1, "a": 2}',
        b"1 2",
        b'"\n"',
    ],
)
def test_what_programs_stumble_over_is_refused(data: bytes) -> None:
    with pytest.raises(JsonError):
        read_json(data)


@given(st.binary())
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    try:
        value = read_json(data)
    except JsonError:
        return
    json.dumps(value, allow_nan=False).encode()


@given(st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_a_number_that_is_read_can_be_converted(text: str) -> None:
    try:
        number = read_json(text)
    except JsonError:
        return
    assert math.isfinite(float(number))
    assert isinstance(int(number), int)


def test_a_document_that_is_no_object_is_refused_where_one_belongs() -> None:
    assert read_json_object(b'{"a": 1}') == {"a": 1}
    with pytest.raises(JsonError, match="not an object"):
        read_json_object(b"[1]")
