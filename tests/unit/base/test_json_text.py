from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.json_text import json_text, plain


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    path: Path
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    color: Color = Color.RED


def test_a_report_becomes_plain_data_all_the_way_down() -> None:
    inner = Inner(Path("a/b"), (1, 2))

    assert plain(Outer(inner, {"x": inner})) == {
        "inner": {"path": "a/b", "shape": [1, 2]},
        "by_name": {"x": {"path": "a/b", "shape": [1, 2]}},
        "color": "red",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.float64(math.nan), None),
        (np.float32(math.inf), None),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, math.nan]), [1.0, None]),
        (ml_dtypes.bfloat16(1.5), 1.5),
        (np.array([1.5], dtype=ml_dtypes.bfloat16), [1.5]),
        (math.nan, None),
        (-math.inf, None),
        (True, True),
        (None, None),
        (PurePosixPath("a"), "a"),
        ({3, 1, 2}, [1, 2, 3]),
        ({1: "a"}, {"1": "a"}),
        (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02T00:00:00+00:00"),
    ],
)
def test_values_keep_their_meaning(value: object, expected: object) -> None:
    assert json.loads(json_text(value)) == expected


def test_a_list_of_numbers_is_one_line_and_everything_else_is_indented() -> None:
    document = {
        "samples": (0.5, math.nan, 3),
        "matrix": [[1, 2], [3, 4]],
        "names": ["a", "b"],
        "inner": Inner(Path("p"), ()),
        "nothing": {},
    }

    assert json_text(document).splitlines() == [
        "{",
        '  "samples": [0.5, null, 3],',
        '  "matrix": [',
        "    [1, 2],",
        "    [3, 4]",
        "  ],",
        '  "names": [',
        '    "a",',
        '    "b"',
        "  ],",
        '  "inner": {',
        '    "path": "p",',
        '    "shape": []',
        "  },",
        '  "nothing": {}',
        "}",
    ]


def test_what_has_no_form_is_refused_and_not_guessed() -> None:
    with pytest.raises(TypeError, match="bytes"):
        json_text(b"abc")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda children: (
            st.lists(children)
            | st.tuples(children)
            | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children)
        ),
        max_leaves=20,
    )
)
def test_any_nesting_is_one_strict_json_document(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json_text(value).encode("utf-8")
    json.loads(json_text(value), parse_constant=refuse)
