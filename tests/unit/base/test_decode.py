"""Any document ends as a value of its type or in one DecodeError that names the path."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.decode import (
    MOST_PROBLEMS,
    Check,
    Convert,
    Count,
    DecodeError,
    Most,
    Range,
    decode,
    encode,
)
from edgekit.base.json_reader import read_json


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Square:
    side: float
    family: Literal["square"] = "square"


@dataclass(frozen=True)
class Circle:
    radius: float
    family: Literal["circle"] = "circle"


@dataclass(frozen=True)
class ByHost:
    host: str
    port: Annotated[int, Range(1, 65535)] = 22


@dataclass(frozen=True)
class ByLine:
    line: str


@dataclass(frozen=True)
class Everything:
    number: int
    count: Count
    real: float
    flag: bool
    text: Annotated[str, Most(12)]
    lower: Annotated[str, Check("a word in small letters", str.islower)]
    word: Literal["left", "right"]
    colour: Colour
    numbers: tuple[int, ...]
    rates: Mapping[str, float]
    shape: Square | Circle
    place: ByHost | ByLine
    either: int | str | None
    free: object = None
    inside: Everything | None = None
    several: tuple[ByLine, ...] = field(default=())


WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
WORD = st.text(string.ascii_lowercase, min_size=1, max_size=6)
TEXT = st.text(string.printable, max_size=12)
EVERYTHING = st.recursive(
    st.none(),
    lambda inner: st.builds(
        Everything,
        number=WHOLE,
        count=st.integers(0, 2**53 - 1),
        real=REAL,
        flag=st.booleans(),
        text=TEXT,
        lower=WORD,
        word=st.sampled_from(["left", "right"]),
        colour=st.sampled_from(Colour),
        numbers=st.lists(WHOLE, max_size=3).map(tuple),
        rates=st.dictionaries(TEXT, REAL, max_size=2),
        shape=st.builds(Square, REAL) | st.builds(Circle, REAL),
        place=st.builds(ByHost, TEXT, st.integers(1, 65535)) | st.builds(ByLine, TEXT),
        either=WHOLE | TEXT | st.none(),
        free=st.none() | WORD,
        inside=inner,
        several=st.lists(st.builds(ByLine, TEXT), max_size=2).map(tuple),
    ),
    max_leaves=3,
).filter(lambda found: found is not None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text() | st.sampled_from(list(Everything.__annotations__)),
            inner,
            max_size=16,
        )
    ),
    max_leaves=12,
)
WHOLE_DOCUMENT: dict[str, Any] = {
    "number": 1, "count": 2, "real": 3, "flag": True, "text": "a", "lower": "b", "word": "left",
    "colour": "red", "numbers": [1], "rates": {"a": 1}, "shape": {"family": "square", "side": 1},
    "place": {"line": "ttyUSB0"}, "either": None,
}  # fmt: skip


def changed(**changes: object) -> dict[str, object]:
    return {**WHOLE_DOCUMENT, **changes}


def refused(document: object, **options: bool) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(Everything, document, "file", **options)
    return str(caught.value)


@given(EVERYTHING)
def test_what_was_encoded_is_decoded(value: Everything) -> None:
    assert decode(Everything, encode(value)) == value
    assert decode(Everything, read_json(json.dumps(encode(value))), need_all=True) == value


@given(JSON)
def test_any_document_ends_as_a_value_or_in_a_typed_error(document: object) -> None:
    try:
        decode(Everything, document, "file")
    except DecodeError as error:
        assert str(error).startswith("file: ") and str(error).isprintable()
        assert len(error.problems) <= MOST_PROBLEMS


@given(st.sampled_from(sorted(WHOLE_DOCUMENT)), JSON)
def test_one_wrong_part_is_named_by_its_path(key: str, value: object) -> None:
    try:
        assert isinstance(decode(Everything, changed(**{key: value})), Everything)
    except DecodeError as error:
        assert all(problem.path[0] == key for problem in error.problems)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed(number="four"), "number must be a whole number, and is \"four\""),
        (changed(number=True), "number must be a whole number, and is true"),
        (changed(number=1.0), "number must be a whole number, and is 1.0"),
        (changed(number=10**30), "number must be a whole number, and is a huge number"),
        (changed(count=-1), "count must be a whole number from 0 to 9007199254740991, and is -1"),
        (changed(real=math.inf), "real must be a number, and is inf"),
        (changed(real=math.nan), "real must be a number, and is nan"),
        (changed(real=10**400), "real must be a number, and is a huge number"),
        (changed(real=True), "real must be a number, and is true"),
        (changed(flag=1), "flag must be true or false, and is 1"),
        (changed(text="x" * 13), "text must be text of at most 12 characters, and is \"xxx"),
        (changed(text="\0"), "text must be text of at most 12 characters, and is \"\\x00\""),
        (changed(lower="B"), "lower must be a word in small letters, and is \"B\""),
        (changed(word="lefd"), "word must be one of \"left\", \"right\", and is \"lefd\"; did you"),
        (changed(colour=["red"]), "colour must be one of \"red\", \"green\", and is a list"),
        (changed(numbers=[1, None]), "numbers[1] must be a whole number, and is null"),
        (changed(rates={"a": "1"}), "rates.a must be a number, and is \"1\""),
        (changed(rates=[1]), "rates must be a table, and is a list"),
        (changed(shape={"family": "square"}), "shape.side must be a number, and is missing"),
        (changed(shape={}), "shape.family must be one of \"square\", \"circle\", and is missing"),
        (
            changed(shape={"family": "circel", "radius": 1}),
            'shape.family must be one of "square", "circle", and is "circel"; did you mean circle?',
        ),
        (
            changed(place={"host": "pi", "port": 0}),
            "place.port must be a whole number from 1 to 65535, and is 0",
        ),
        (changed(place={"host": 1}), "place.host must be text, and is 1"),
        (changed(place=5), "place must be a table, and is 5"),
        (changed(either=1.5), "either must be a whole number or text, and is 1.5"),
        (changed(inside={}), "inside.number must be a whole number, and is missing"),
        (changed(nummber=1), "nummber must be one of the keys"),
        ([], "the document must be a table, and is a list"),
    ],
)  # fmt: skip
def test_an_error_names_the_path_and_what_is_there(document: object, message: str) -> None:
    assert refused(document).startswith(f"file: {message}")


def test_a_misspelt_key_is_recognised() -> None:
    message = refused(changed(nummber=1))

    assert message.endswith("and is an unknown key; did you mean number?")


def test_unknown_keys_and_missing_ones_are_taken_as_declared() -> None:
    assert decode(Everything, changed(more=1), ignore_unknown=True).free is None
    assert "free must be a value, and is missing" in refused(WHOLE_DOCUMENT, need_all=True)


def test_every_problem_is_collected_up_to_a_limit() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Everything, changed(number="a", flag="b", numbers=["c"] * 1000))

    paths = [problem.path for problem in caught.value.problems]
    assert paths[:3] == [("number",), ("flag",), ("numbers", 0)]
    assert len(paths) == MOST_PROBLEMS


def test_no_depth_is_too_much() -> None:
    document: dict[str, object] = dict(WHOLE_DOCUMENT)
    for _ in range(20_000):
        document = changed(inside=document)

    assert refused(document) == "file: the document: it is nested too deeply"


def test_a_dataclass_may_refuse_its_own_fields() -> None:
    @dataclass(frozen=True)
    class Span:
        low: int
        high: Annotated[int, Convert("a whole number in text", int)]

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("its low end is above its high end")

    assert decode(Span, {"low": 1, "high": "2"}) == Span(1, 2)
    with pytest.raises(DecodeError, match="the document: its low end is above its high end"):
        decode(Span, {"low": 3, "high": "2"})
    with pytest.raises(DecodeError, match='high must be a whole number in text, and is "x"'):
        decode(Span, {"low": 3, "high": "x"})
