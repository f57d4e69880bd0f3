"""The problem that a product over packed weights computes, independent of their packing.

Its text is the key of a measured choice: it is known before the weights are packed, and stays with
the kernel as an annotation of its block.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from edgekit.base.files import sha256_bytes

NOTE = "edgekit.problem"
"""The annotation of a block that holds its problem."""


@dataclass(frozen=True)
class Window:
    """A convolution's window and its steps over the input."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    dilation: tuple[int, int]
    spread: tuple[int, int] = (1, 1)
    """The distances of the input's lines and pixels, with zeros between them: the strides of a
    transposed convolution."""
    channels_first: bool = False
    """Whether the input is (N, C, H, W), as the first of a network."""


@dataclass(frozen=True)
class Problem:
    data: tuple[int, ...]
    weight: tuple[int, ...]
    """(KH, KW, C / groups, O), or (K, columns)."""
    groups: int = 1
    strides: tuple[int, int] | None = None
    """The steps of a convolution; None for a matrix product, as in the fields below."""
    padding: tuple[int, int, int, int] | None = None
    dilation: tuple[int, int] | None = None
    spread: tuple[int, int] | None = None
    channels_first: bool = False

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def key(self) -> str:
        return f"product-{sha256_bytes(self.text.encode())[:32]}"

    @property
    def words(self) -> str:
        data, weight = ("x".join(map(str, shape)) for shape in (self.data, self.weight))
        return f"{'product' if self.strides is None else 'convolution'} {data} by {weight}"


def convolution_problem(
    data: Any, kernel: tuple[int, ...], window: Window, groups: int, channels: int
) -> Problem:
    """Return the problem; `kernel` is (KH, KW, C / groups)."""
    weight = (*(int(extent) for extent in kernel), channels)
    return Problem(tuple(int(extent) for extent in data), weight, groups, **vars(window))


def dense_problem(data: Any, depth: int, columns: int) -> Problem:
    return Problem(tuple(int(extent) for extent in data), (depth, columns))


def read_problem(text: str) -> Problem:
    values = json.loads(text)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Problem(**fields)
