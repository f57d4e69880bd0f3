"""What to offload, in names and numbers: decided where a user asks, carried out where TVM is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.backends.base import Backend, Options, OptionValue
from edgekit.backends.cost import Rates, Verdict
from edgekit.backends.registry import is_foreign, load_backend
from edgekit.errors import ProfileError, UsageError
from edgekit.wording import did_you_mean

if TYPE_CHECKING:
    from edgekit.backends.partition import Selection
    from edgekit.board import Board


@dataclass(frozen=True)
class OffloadPlan:
    """Nothing is offloaded unless it names a backend."""

    backends: tuple[str, ...] = ()
    """In the order of preference."""
    options: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    """By backend: what differs from its defaults."""
    force: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    rates: Rates = field(default_factory=Rates)
    measured: Mapping[str, Verdict] = field(default_factory=dict)
    one_layer_each: bool = False


def plan_offload(board: Board, asked: tuple[str, ...] | None) -> OffloadPlan:
    """What was asked for, or else what the board's profile says; UsageError for a backend that
    the board can't have."""
    names = board.offload.default if asked is None else asked
    for name in names:
        _check_allowed(name, board)
    return OffloadPlan(backends=names)


def _check_allowed(name: str, board: Board) -> None:
    backend = load_backend(name)
    fits = board.cpu.arch in backend.architectures
    if fits and (is_foreign(name) or name in board.offload.allowed):
        return
    allowed = ", ".join(board.offload.allowed) or "none"
    raise UsageError(
        f"{board.name} can't offload to {name}"
        + ("" if fits else f", which runs on {' and '.join(backend.architectures)}"),
        hint=f"its profile allows {allowed}; without --offload TVM compiles everything",
    )


def selection_of(plan: OffloadPlan) -> Selection:
    """The plan with its backends loaded."""
    from edgekit.backends.partition import Selection

    return Selection(
        backends=tuple(
            (backend, options_of(backend, plan.options.get(backend.name, {})))
            for backend in map(load_backend, plan.backends)
        ),
        force=plan.force,
        never=plan.never,
        rates=plan.rates,
        measured=plan.measured,
        one_layer_each=plan.one_layer_each,
    )


def options_of(backend: Backend, given: Mapping[str, OptionValue]) -> Options:
    """A backend's options, complete; ProfileError for what it does not have."""
    options = {name: option.default for name, option in backend.options.items()}
    for name, value in given.items():
        if name not in options:
            raise ProfileError(
                f"the backend {backend.name} has no option {name!r}",
                hint=did_you_mean(name, tuple(options), f"it has {', '.join(options) or 'none'}"),
            )
        option = backend.options[name]
        fits = value in option.choices if option.choices else _same_kind(value, option.default)
        if not fits:
            expected = (
                "one of " + ", ".join(map(str, option.choices))
                if option.choices
                else f"a value such as {option.default!r}"
            )
            raise ProfileError(
                f"the option {name} of the backend {backend.name} can't be {value!r}",
                hint=f"it takes {expected}: {option.help}",
            )
        options[name] = value
    return options


def _same_kind(value: OptionValue, default: OptionValue) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    return type(value) is type(default)
