from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512 B", 512),
        ("320 KiB", 327_680),
        ("1 MiB", 1_048_576),
        ("4 GiB", 4_294_967_296),
        ("1.5 MiB", 1_572_864),
        ("4GiB", 4_294_967_296),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "4", "4 GB", "4 gib", "-1 KiB", "1.3 B", "KiB", "1e3 KiB", "٤ KiB", "1 KiB KiB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=10**15 - 1))
def test_a_formatted_size_is_read_back_as_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text())
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_size(text) >= 0
