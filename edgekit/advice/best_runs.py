"""Finds the best stored run of each option, all from one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgekit.advice.words import BestRun, Considered, Option
from edgekit.base.measurer import Measurer
from edgekit.base.wording import number
from edgekit.models.model import ModelSource
from edgekit.store.runs import BenchRun

PURPOSE, TUNED_PURPOSE = "recommend", "recommend tuned"
"""The purposes of runs by `--measure`, which tell how their kernels were chosen."""
_TUNED = (TUNED_PURPOSE, "tune")
_INT8 = "int8"
_MOST_RUNS = 1000


def with_best_runs(source: ModelSource, seen: Considered, store: str | None) -> tuple[Option, ...]:
    """Return the options with their best runs; new measurements take precedence."""
    new = next((option.known for option in seen.options if option.known), None)
    found = _best_runs(source, seen.board.name, store, new)
    options = [replace(o, known=o.known or found.get(_key(o))) for o in seen.options]
    return tuple(_compared(options))


def _key(option: Option) -> str:
    return option.name if option.kind == "library" else option.kind


def _best_runs(
    source: ModelSource, board: str, store: str | None, like: BestRun | None
) -> Mapping[str, BestRun]:
    """Return the best run by option, all of one device, unit and measurer.

    Those are the ones of `like`, else hardware with the most measured options, else any.
    """
    from edgekit.verbs.recording import is_off

    if is_off(store):
        return {}
    wanted = None if like is None else (like.device, like.unit, like.measured_by)
    places: dict[tuple[str, str, Measurer | None], dict[str, BenchRun]] = {}
    for key, run in _runs(source, board, store):
        place = (run.device, run.unit, run.measured_by)
        if wanted is not None and place != wanted:
            continue
        found = places.setdefault(place, {})
        best = found.get(key)
        if best is None or run.median < best.median:
            found[key] = run
    if not places:
        return {}
    # Of several with as many, the latest.
    most = max(places, key=lambda place: (place[-1] == "hardware", len(places[place])))
    return {
        key: BestRun(run.median, run.unit, run.measured_by, run.device, run.measured_at, run.id)
        for key, run in places[most].items()
    }


def _runs(source: ModelSource, board: str, store: str | None) -> list[tuple[str, BenchRun]]:
    """Return the runs with the keys of their options. An int8 model is recognized by its name."""
    from edgekit.store.bench_runs import RunFilter
    from edgekit.store.results import list_results

    own = RunFilter(board=board, limit=_MOST_RUNS, model_sha256=source.sha256)
    small = RunFilter(board=board, limit=_MOST_RUNS, model=f"{source.name}-{_INT8}")
    return [
        *((_option_of(run), run) for run in list_results(own, store).runs if not run.sizes),
        *((_INT8, run) for run in list_results(small, store).runs if not run.sizes),
    ]


def _option_of(run: BenchRun) -> str:
    if run.build.offload:
        return "+".join(run.build.offload)
    return "tuned" if run.purpose in _TUNED else "kernels"


def _compared(options: list[Option]) -> list[Option]:
    """Add the comparison with edgekit's plain kernels to each option measured by hardware, and
    what else is known to the others."""
    plain = next((o for o in options if o.kind == "kernels" and _ranks(o)), None)
    compared = []
    for option in options:
        if option.known is None or not option.supported:
            compared.append(option)
            continue
        words = f"{option.known.in_words} on {option.known.device}"
        if not option.known.ranks:
            words = f"not measured on hardware; {words}, which says nothing about the board's time"
        elif plain is not None and plain.known is not None and option is not plain:
            ratio = plain.known.median / option.known.median if option.known.median else 1.0
            verdict = "yes" if ratio > 1 else "no"
            own = plain.known.in_words
            words = (
                f"{verdict}: {number(ratio)} times as fast as {plain.name}, {words} against {own}"
            )
        compared.append(replace(option, answers=replace(option.answers, faster=words)))
    return compared


def _ranks(option: Option) -> bool:
    return option.known is not None and option.known.ranks
