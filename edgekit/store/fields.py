"""The forms of a store's fields. A column is as wide as its field's type says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated

from edgekit.base.decode import Check, Most, Range

_LONGEST_OBJECT = 4 << 20

Hash = Annotated[str, Most(64)]
Name = Annotated[str, Most(200)]
"""The name of a device, a host or a kernel."""
BoardName = Annotated[str, Most(100)]
ModelName = Annotated[str, Most(500)]
Word = Annotated[str, Most(20)]
Version = Annotated[str, Most(50)]
Words = Annotated[str, Most(10_000)]

Int32 = Annotated[int, Range(1 - (1 << 31), (1 << 31) - 1)]
"""A whole number; a plain int has 64 bits."""

_IS_ID = Check("32 hexadecimal digits", re.compile(r"[0-9a-f]{32}").fullmatch)
_IS_TIME = Check(
    "a time such as 2026-01-31T12:00:00Z",
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z").fullmatch,
)
Id = Annotated[str, Most(32), _IS_ID]
Time = Annotated[str, Most(40), _IS_TIME]
"""A time in ISO 8601 and UTC, as `moments.now` writes it."""
RunTime = Annotated[str, Most(32), _IS_TIME]


def _is_moderate(value: Mapping[str, object]) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) <= _LONGEST_OBJECT
    except (ValueError, TypeError, RecursionError):
        return False


PlainObject = Annotated[Mapping[str, object], Check("an object of moderate size", _is_moderate)]
"""A JSON object whose content is free."""
