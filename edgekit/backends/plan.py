"""What to offload, in names and numbers: decided where a user asks, carried out where TVM is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.backends.base import Backend, Options, OptionValue
from edgekit.backends.cost import Rates
from edgekit.backends.measurements import Measured, measured_backends, read_measurements
from edgekit.backends.registry import backend_names, load_backend
from edgekit.base.errors import ProfileError, UsageError
from edgekit.base.wording import did_you_mean
from edgekit.profiles.board import BACKENDS
from edgekit.profiles.offload import AUTO, ONLY_MEASURED, OffloadSettings, ProjectOffload

if TYPE_CHECKING:
    from edgekit.backends.partition import Selection
    from edgekit.profiles.board import Board


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
    measured: Mapping[str, Measured] = field(default_factory=dict)
    """By region: goes before what is reckoned."""
    one_layer_each: bool = False


def plan_offload(
    board: Board,
    project: ProjectOffload,
    asked: tuple[str, ...] | None = None,
    *,
    twin: bool = False,
) -> OffloadPlan:
    """What was asked for goes before what the project says, and that before the board's profile;
    rates and options name by name. With `AUTO`, where neither file names a backend: what was
    measured to be faster, and nothing else. What was measured on twins counts for a `twin` alone.
    UsageError for a backend that the board can't have."""
    settings = (board.offload.settings, project.settings)
    rates = Rates(**{key: value for file in settings for key, value in file.rates.items()})
    names = asked if asked not in (None, AUTO) else project.backends
    if names is None or names == AUTO:
        # A profile may be ahead of the edgekit that reads it.
        names = tuple(name for name in board.offload.default if name in backend_names())
        if not names and AUTO in (asked, project.backends):
            names, rates = _faster_somewhere(board, twin), ONLY_MEASURED
    for name in names:
        _check_allowed(name, board)
    if names:
        _check_tables(settings)
    return OffloadPlan(
        backends=names,
        options={
            name: {key: value for file in settings for key, value in _table(file, name).items()}
            for name in names
        },
        force=project.force,
        never=project.never,
        rates=rates,
        measured=_measured(board, names, twin),
    )


def _measured(board: Board, names: Sequence[str], twin: bool) -> Mapping[str, Measured]:
    if not names:
        return {}
    versions = {name: load_backend(name).version for name in names}
    measured = read_measurements(board.name, versions)
    return {**measured, **read_measurements(twin_of(board), versions)} if twin else measured


def _faster_somewhere(board: Board, twin: bool) -> tuple[str, ...]:
    """Backends of which some region was measured to be faster than TVM's on such a board."""
    tried = measured_backends(board.name) | (
        measured_backends(twin_of(board)) if twin else frozenset()
    )
    names = [
        name
        for name in backend_names()
        if name in tried and (name not in BACKENDS or name in board.offload.allowed)
    ]
    measured = _measured(board, names, twin).values()
    faster = {record.backend for record in measured if record.verdict.pays}
    preferred = (*board.offload.allowed, *names)
    return tuple(name for name in dict.fromkeys(preferred) if name in faster)


def twin_of(board: Board) -> str:
    """Under which name what its twins measure is kept: an emulated CPU's times are not a board's,
    and must not decide for one."""
    return f"{board.name} (twin)"


def _table(settings: OffloadSettings, backend: str) -> Mapping[str, OptionValue]:
    return settings.options.get(backend, {})


def _check_tables(settings: Sequence[OffloadSettings]) -> None:
    """Options of a backend that there is none of were meant for another."""
    known = (*backend_names(), *BACKENDS)
    for name in {name: None for file in settings for name in file.options}:
        if name not in known:
            raise ProfileError(
                f"the table [offload.{name}] is for a backend that is not there",
                hint=did_you_mean(name, known, "install the package that brings it"),
            )


def _check_allowed(name: str, board: Board) -> None:
    if name in BACKENDS and name not in board.offload.allowed:
        raise _not_allowed(name, board, "")
    architectures = load_backend(name).architectures
    if board.cpu.arch not in architectures:
        raise _not_allowed(name, board, f", which runs on {' and '.join(architectures)}")


def _not_allowed(name: str, board: Board, why: str) -> UsageError:
    allowed = ", ".join(board.offload.allowed) or "none"
    return UsageError(
        f"{board.name} can't offload to {name}{why}",
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
        measured={symbol: record.verdict for symbol, record in plan.measured.items()},
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
