"""Plan what to offload, in names and numbers; the compilation carries the plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.backends.base import Backend, HasVariants, Options, OptionValue
from edgekit.backends.measurements import Measured, measured_backends, read_measurements
from edgekit.backends.registry import backend_names, kernel_backend_names, load_backend
from edgekit.base.errors import OffloadRefusedError, ProfileError
from edgekit.base.options import option
from edgekit.base.own_backends import leftovers_backend, own_backends
from edgekit.base.wording import did_you_mean
from edgekit.profiles.offload import AUTO, ONLY_MEASURED, OffloadSettings, ProjectOffload, Rates

if TYPE_CHECKING:
    from edgekit.backends.partition import Selection
    from edgekit.profiles.board import Board


@dataclass(frozen=True)
class OffloadPlan:
    """The plan of a build; without a backend nothing is offloaded."""

    backends: tuple[str, ...] = ()
    """The backends' names, in order of preference."""
    options: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    """The options by backend that differ from its defaults."""
    force: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    rates: Rates = field(default_factory=Rates)
    measured: Mapping[str, Measured] = field(default_factory=dict)
    """Measurements by region, which override estimates."""
    one_layer_each: bool = False


def plan_offload(
    board: Board,
    project: ProjectOffload,
    asked: tuple[str, ...] | None = None,
    *,
    twin: bool = False,
    store: str | None = None,
) -> OffloadPlan:
    """Plan a build's offloading. The caller's request overrides the project, which overrides the
    board's profile; rates and options are merged name by name.

    With `AUTO`, if neither file names a backend, only regions measured as faster are offloaded.
    Measurements of the `store` on twins count only for a `twin`, and then those on the board do
    not: the two are never weighed against each other. UsageError for a backend that the board
    cannot run."""
    settings = (board.offload.settings, project.settings)
    rates = Rates(**{key: value for file in settings for key, value in file.rates.items()})
    names = asked if asked not in (None, AUTO) else project.backends
    if names is None or names == AUTO:
        # A profile may be newer than the edgekit that reads it.
        names = tuple(name for name in board.offload.default if name in backend_names())
        if not names and AUTO in (asked, project.backends):
            names, rates = _faster_somewhere(board, settings, twin, store), ONLY_MEASURED
    for name in names:
        _check_allowed(name, board)
    rest = leftovers_backend(names)
    if rest:  # It takes what no other does, wherever it stands in the list.
        names = (*(name for name in names if name != rest), rest)
    if names:
        _check_tables(settings)
    options = _merged(settings, names)
    return OffloadPlan(
        backends=names,
        options=options,
        force=project.force,
        never=project.never,
        rates=rates,
        measured=_measured(board, options, twin, store),
    )


def _merged(
    settings: Sequence[OffloadSettings], names: Sequence[str]
) -> dict[str, dict[str, OptionValue]]:
    return {
        name: {key: value for file in settings for key, value in _table(file, name).items()}
        for name in names
    }


def _measured(
    board: Board,
    options: Mapping[str, Mapping[str, OptionValue]],
    twin: bool,
    store: str | None,
) -> Mapping[str, Measured]:
    if not options:
        return {}
    versions = {name: chosen_backend(name, given)[0].version for name, given in options.items()}
    on_twins = read_measurements(twin_of(board), versions, store) if twin else {}
    return on_twins or read_measurements(board.name, versions, store)


def _faster_somewhere(
    board: Board, settings: Sequence[OffloadSettings], twin: bool, store: str | None
) -> tuple[str, ...]:
    """Return the backends with a region that was measured faster than TVM on such a board."""
    tried = measured_backends(board.name, store) | (
        measured_backends(twin_of(board), store) if twin else frozenset()
    )
    names = [
        name
        for name in backend_names()
        if name in tried and (name not in own_backends() or name in board.offload.allowed)
    ]
    measured = _measured(board, _merged(settings, names), twin, store).values()
    faster = {record.backend for record in measured if record.verdict.pays}
    preferred = (*board.offload.allowed, *names)
    return tuple(name for name in dict.fromkeys(preferred) if name in faster)


def twin_of(board: Board) -> str:
    """Return the name for measurements on a board's twins: an emulated CPU's times must not decide
    for the board."""
    return f"{board.name} (twin)"


def _table(settings: OffloadSettings, backend: str) -> Mapping[str, OptionValue]:
    return settings.options.get(backend, {})


def _check_tables(settings: Sequence[OffloadSettings]) -> None:
    """Refuse options of an unknown backend: they are meant for another."""
    known = (*backend_names(), *kernel_backend_names())
    for name in {name: None for file in settings for name in file.options}:
        if name not in known:
            raise ProfileError(
                f"the table [offload.{name}] is for a backend that is not there",
                hint=did_you_mean(name, known, "install the package that brings it"),
            )


def _check_allowed(name: str, board: Board) -> None:
    if name in own_backends() and name not in board.offload.allowed:
        raise _not_allowed(name, board, "")
    architectures = load_backend(name).architectures
    if board.cpu.arch not in architectures:
        raise _not_allowed(name, board, f", which runs on {' and '.join(architectures)}")


def _not_allowed(name: str, board: Board, why: str) -> OffloadRefusedError:
    allowed = ", ".join(board.offload.allowed) or "none"
    return OffloadRefusedError(
        f"{board.name} can't offload to {name}{why}",
        hint=f"its profile allows {allowed}; without {option('offload')} TVM compiles everything",
    )


def selection_of(plan: OffloadPlan) -> Selection:
    """Load the plan's backends."""
    from edgekit.backends.partition import Selection

    return Selection(
        backends=tuple(chosen_backend(name, plan.options.get(name, {})) for name in plan.backends),
        force=plan.force,
        never=plan.never,
        rates=plan.rates,
        measured={symbol: record.verdict for symbol, record in plan.measured.items()},
        one_layer_each=plan.one_layer_each,
    )


def chosen_backend(name: str, given: Mapping[str, OptionValue]) -> tuple[Backend, Options]:
    """Load a backend with the library that its options choose; return it with all options."""
    backend = load_backend(name)
    options = options_of(backend, given)
    return (backend.variant(options) if isinstance(backend, HasVariants) else backend), options


def options_of(backend: Backend, given: Mapping[str, OptionValue]) -> Options:
    """Return all options of a backend; ProfileError for an unknown option."""
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
