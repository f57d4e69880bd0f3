"""The decisions of a rule that measurement can replace.

A choice says how a kernel is computed, never what: the numbers are right in any case. None in a
field leaves it to the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, cast

from edgekit.base.decode import Convert, decode, encode
from edgekit.compiler.schedules.tiles import Extent, Tile
from edgekit.compiler.schedules.trace_text import check_trace

if TYPE_CHECKING:
    from edgekit.compiler.schedules.machine import Machine

VERSION = 4
"""The version of the rules: raise it when one makes other code, which invalidates measurements."""

EXACTLY = "/"
"""The separator between a product's key and the rest of a whole kernel's key: a trace belongs to
one such kernel, other choices to the product in any kernel."""


def _checked_trace(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError
    if text:
        check_trace(text)
    return text


@dataclass(frozen=True)
class ProductChoice:
    """A choice for a product over packed weights."""

    tile: Tile | None = None
    unrolled: Extent = 4
    """Steps of the sum that are unrolled."""
    lines_at_once: Extent = 8
    """Lines that one core computes at a time. Of their input lines, padding included, the kernel's
    height less one are copied twice."""
    panels_outside: bool | None = None
    """Whether each panel of weights is read once and the image repeatedly, or the reverse."""
    parallel: bool | None = None
    family: Literal["product"] = "product"

    @property
    def words(self) -> str:
        own = ProductChoice()
        parts = []
        if self.tile is not None:
            lines = f"{self.tile.lines}x" if self.tile.lines > 1 else ""
            parts.append(f"tile {lines}{self.tile.pixels}x{self.tile.channels}")
        if self.unrolled != own.unrolled:
            parts.append(f"unrolled {self.unrolled}")
        if self.lines_at_once != own.lines_at_once:
            parts.append(f"{self.lines_at_once} lines at once")
        if self.panels_outside is not None:
            parts.append("panels outside" if self.panels_outside else "panels inside")
        return ", ".join([*parts, *_cores(self.parallel)])


@dataclass(frozen=True)
class DepthwiseChoice:
    width: Extent | None = None
    """Channels at a time."""
    pixels: Extent | None = None
    lines_at_once: Extent = 8
    parallel: bool | None = None
    family: Literal["depthwise"] = "depthwise"

    @property
    def words(self) -> str:
        parts = []
        if self.width is not None or self.pixels is not None:
            parts.append(f"tile {self.pixels or 'own'}x{self.width or 'own'}")
        if self.lines_at_once != DepthwiseChoice().lines_at_once:
            parts.append(f"{self.lines_at_once} lines at once")
        return ", ".join([*parts, *_cores(self.parallel)])


@dataclass(frozen=True)
class GenericChoice:
    lanes: Extent | None = None
    """Elements of a line at a time."""
    steps_apart: bool = False
    """Whether element-wise steps stay separate, instead of becoming part of their reader."""
    parallel: bool | None = None
    family: Literal["generic"] = "generic"

    @property
    def words(self) -> str:
        parts = [f"{self.lanes} lanes"] if self.lanes is not None else []
        parts += ["steps apart"] if self.steps_apart else []
        return ", ".join([*parts, *_cores(self.parallel)])


@dataclass(frozen=True)
class TraceChoice:
    """A schedule that a search found, in place of any rule's."""

    trace: Annotated[str, Convert("a trace of a schedule for CPUs", _checked_trace)] = ""
    """MetaSchedule's JSON; empty for the rule's own choice."""
    family: Literal["trace"] = "trace"

    @property
    def words(self) -> str:
        return "trace"


Choice = ProductChoice | DepthwiseChoice | GenericChoice | TraceChoice

FAMILIES: dict[
    str, type[ProductChoice] | type[DepthwiseChoice] | type[GenericChoice] | type[TraceChoice]
] = {
    "product": ProductChoice,
    "depthwise": DepthwiseChoice,
    "generic": GenericChoice,
    "trace": TraceChoice,
}
"""The choice type of each rule; a trace is for any kernel."""


@dataclass(frozen=True)
class Choices:
    """The measured choices that are better than the rules' own, by the key of the kernel."""

    of_kernel: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def traces(self) -> bool:
        """Whether any choice is a trace: keys then cover more than what kernels compute."""
        return any(isinstance(choice, TraceChoice) for choice in self.of_kernel.values())

    def tile_of(self, kernel: str) -> Tile | None:
        choice = self.of_kernel.get(kernel)
        return choice.tile if isinstance(choice, ProductChoice) else None


NO_CHOICES = Choices()


def on_its_cores(machine: Machine, parallel: bool | None) -> Machine:
    """Return the machine as seen by a kernel that was set to use all cores, or one."""
    if parallel is None:
        return machine
    return replace(machine, parallel_work=0) if parallel else replace(machine, cores=1)


def choice_as_json(choice: Choice) -> dict[str, object]:
    # The family stays first: keys of builds and measurements are hashes of this text.
    return {"family": choice.family, **encode(choice)}


def choice_from_json(document: Mapping[str, object]) -> Choice:
    """Return the choice; raise ValueError for a document that `choice_as_json` cannot produce."""
    return decode(cast("type[Choice]", Choice), document, need_all=True)


def _cores(parallel: bool | None) -> list[str]:
    if parallel is None:
        return []
    return ["all cores" if parallel else "one core"]
