"""What the store knows of each option: the best run, all of one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.advice.words import Considered, Known, Option
from edgekit.base.wording import milliseconds

if TYPE_CHECKING:
    from edgekit.models.model import ModelSource
    from edgekit.store.runs import BenchRun

PURPOSE, TUNED_PURPOSE = "recommend", "recommend tuned"
"""What `--measure` keeps its runs for: a run says nothing else of how its kernels were chosen."""
_TUNED = (TUNED_PURPOSE, "tune")
_INT8 = "int8"
_MOST_RUNS = 1000


def with_known(source: ModelSource, seen: Considered, store: str | None) -> tuple[Option, ...]:
    """The options with their best runs: what was measured just now goes before what was."""
    measured = next((option.known for option in seen.options if option.known), None)
    found = _known(source, seen.board.name, store, measured)
    options = [replace(o, known=o.known or found.get(_key(o))) for o in seen.options]
    return tuple(_compared(options))


def _key(option: Option) -> str:
    return option.name if option.kind == "library" else option.kind


def _known(
    source: ModelSource, board: str, store: str | None, like: Known | None
) -> Mapping[str, Known]:
    """By option, all of one device and unit, as times of several say nothing of the option: those
    of `like`, else where most was measured. Without a store there is none."""
    from edgekit.verbs.recording import is_off

    if is_off(store):
        return {}
    places: dict[tuple[str, str], dict[str, BenchRun]] = {}
    for key, run in _runs(source, board, store):
        if like is not None and (run.device, run.unit) != (like.device, like.unit):
            continue
        found = places.setdefault((run.device, run.unit), {})
        best = found.get(key)
        if best is None or run.median < best.median:
            found[key] = run
    most = max(places.values(), key=len, default={})  # the latest where there are several
    return {
        key: Known(run.median, run.unit, run.device, run.measured_at, run.id)
        for key, run in most.items()
    }


def _runs(source: ModelSource, board: str, store: str | None) -> list[tuple[str, BenchRun]]:
    """Each with the key of its option. A model in int8 is another file: its name is all there is
    to know it by."""
    from edgekit.store.bench_runs import RunFilter
    from edgekit.store.results import list_results

    own = RunFilter(board=board, limit=_MOST_RUNS, model_sha256=source.sha256)
    small = RunFilter(board=board, limit=_MOST_RUNS, model=f"{source.name}-{_INT8}")
    return [
        *((_option_of(run), run) for run in list_results(own, store).runs),
        *((_INT8, run) for run in list_results(small, store).runs),
    ]


def _option_of(run: BenchRun) -> str:
    if run.build.offload:
        return "+".join(run.build.offload)
    return "tuned" if run.purpose in _TUNED else "kernels"


def _compared(options: list[Option]) -> list[Option]:
    """Each measured option beside the kernels that every other one wants to beat."""
    plain = next((o for o in options if o.kind == "kernels" and o.known is not None), None)
    told = []
    for option in options:
        if option.known is None or not option.supported:
            told.append(option)
            continue
        words = f"{figure(option.known)} on {option.known.device}"
        if plain is not None and plain.known is not None and option is not plain:
            ratio = plain.known.median / option.known.median if option.known.median else 1.0
            verdict = "yes" if ratio > 1 else "no"
            own = figure(plain.known)
            words = f"{verdict}: {ratio:.2f} times as fast as {plain.name}, {words} against {own}"
        told.append(replace(option, answers=replace(option.answers, faster=words)))
    return told


def figure(known: Known) -> str:
    if known.unit == "seconds":
        return milliseconds(known.median)
    return f"{known.median:,.0f} {known.unit}"
