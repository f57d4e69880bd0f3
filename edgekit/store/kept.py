"""Everything that a store keeps of one model: a run in full, the other runs, the searches."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.store.address import is_off
from edgekit.store.results import opened_store
from edgekit.store.runs import BenchRun
from edgekit.store.tuning_results import SessionCurve

_MOST_RUNS = 500
_SESSIONS_SEEN, _MOST_SESSIONS = 200, 6


@dataclass(frozen=True)
class Kept:
    run: BenchRun | None
    """The run to show in full, with its samples and, if it has one, its profile."""
    runs: tuple[BenchRun, ...]
    """The runs of its model, latest first."""
    curves: tuple[SessionCurve, ...]
    """The searches for faster kernels of its model that found something, latest first."""


def kept_of_bundle(digest: str, model: str, board: str, url: str | None = None) -> Kept:
    """Read what is kept of a bundle: its latest run with a profile, else its latest."""
    if is_off(url):
        return Kept(None, (), ())
    from edgekit.store.bench_runs import last_run_of

    with opened_store(url) as store:
        run = last_run_of(store, digest, profiled=True) or last_run_of(
            store, digest, profiled=False
        )
    return _kept(run, model, board, None, url)


def kept_of_run(name: str, url: str | None = None) -> tuple[BenchRun, Kept]:
    """Find a run by its id, by the beginning of its id, or as `latest`."""
    from edgekit.store.bench_runs import find_bench_run

    with opened_store(url) as store:
        run = find_bench_run(store, name)
    return run, _kept(run, run.build.model, run.build.board, run.device, url)


def kept_of_model(model: str, board: str | None, url: str | None = None) -> Kept:
    """Read what is kept of a model."""
    return Kept(None, (), ()) if is_off(url) else _kept(None, model, board, None, url)


def _kept(
    run: BenchRun | None, model: str, board: str | None, device: str | None, url: str | None
) -> Kept:
    from edgekit.store.bench_runs import RunFilter, list_bench_runs
    from edgekit.store.tuning import progress_of, sessions

    with opened_store(url) as store:
        runs = list_bench_runs(store, RunFilter(model, board, device, _MOST_RUNS))
        own = [
            session
            for session in sessions(store, _SESSIONS_SEEN)
            if session.model == model and board in (None, session.board)
        ]
        curves = (SessionCurve(one, progress_of(store, one.id)) for one in own[:_MOST_SESSIONS])
        return Kept(run, runs, tuple(one for one in curves if one.curve))
