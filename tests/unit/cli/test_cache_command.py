"""Ages and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import UsageError
from edgekit.cli.cache import parse_age, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("12h", 43200), ("30d", 2592000), ("2w", 1209600), ("0d", 0)],
)
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("0", 0), ("512", 512), ("512B", 512), ("2GB", 2 * 10**9), ("1.5 kB", 1500)),
        *(("2GiB", 2 << 30), ("500 MiB", 500 << 20), ("1t", 10**12), ("1 TiB", 1 << 40)),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "1.5d", "30 days", "1y", "٣d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an age"):
        parse_age(text)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "2 XB", "2GBit", "1,5GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_size(text)


@given(st.text(max_size=12))
def test_no_text_raises_anything_but_a_usage_error(text: str) -> None:
    for parse in (parse_age, parse_size):
        try:
            assert parse(text) >= 0
        except UsageError as error:
            assert error.hint
