"""The problem that a product over packed weights computes, independent of their packing.

Its text is the key of a measured choice: it is known before the weights are packed, and stays with
the kernel as an annotation of its block.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from edgekit.base.files import sha256_bytes

NOTE = "edgekit.problem"
"""The annotation of a block that holds its problem."""


class Window(Protocol):
    """A convolution's steps over its input: `packed.Window`."""

    @property
    def strides(self) -> tuple[int, int]: ...
    @property
    def padding(self) -> tuple[int, int, int, int]: ...
    @property
    def dilation(self) -> tuple[int, int]: ...
    @property
    def spread(self) -> tuple[int, int]: ...
    @property
    def channels_first(self) -> bool: ...


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
    return Problem(
        tuple(int(extent) for extent in data),
        (*(int(extent) for extent in kernel), channels),
        groups,
        window.strides,
        window.padding,
        window.dilation,
        window.spread,
        window.channels_first,
    )


def dense_problem(data: Any, depth: int, columns: int) -> Problem:
    return Problem(tuple(int(extent) for extent in data), (depth, columns))


def read_problem(text: str) -> Problem:
    values = json.loads(text)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Problem(**fields)
