"""Builds, deploys, verifies and measures one model on several boards, with several offloads each.

Each finished cell is written at once, so that a later session resumes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.decode import decode, decode_json, encode
from edgekit.base.errors import EdgekitError, OffloadRefusedError, StorageError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.json_text import plain
from edgekit.base.options import option
from edgekit.base.own_folder import remember_origin
from edgekit.building.request import BuildRequest
from edgekit.devices.base import Session
from edgekit.devices.device import Device
from edgekit.models.model import ModelSource
from edgekit.profiles.board import Board
from edgekit.project.workspace import WorkspaceData
from edgekit.verbs.ahead import Ahead, built_ahead
from edgekit.verbs.beside.cells import BESIDE, beside_cells
from edgekit.verbs.beside.runtimes import Runtime, runtime_called, why_not
from edgekit.verbs.fleet import on_each
from edgekit.verbs.matrix_plan import MatrixPlan
from edgekit.verbs.matrix_report import Cell, Matrix, now, unmeasured, write_reports
from edgekit.verbs.matrix_ways import Cells, parse_way
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.store.runs import AccuracyFigure
    from edgekit.verbs.evaluation.evaluate import EvaluationPlan

STATE_FILE = "matrix.json"
_FORMAT = 4


def measure_matrix(
    workspace: WorkspaceData,
    source: ModelSource,
    plan: MatrixPlan,
    reach: Callable[[Board, Events], Device],
    events: Events = SILENT,
    ahead: Ahead | None = None,
) -> Matrix:
    """Measure all boards at the same time, the cells of each one after another.

    The report names the reason for each failed cell. A board's offload that it can't use is no
    failure, and needs no device. With `ahead`, cells are built while others are measured.
    """
    from edgekit.devices.choice import Candidate

    if not plan.boards or not plan.offloads:
        raise UsageError(
            "a matrix needs boards and offloads",
            hint="name some of each, such as the boards a,b and the offload none",
        )
    offloads = tuple(dict.fromkeys(plan.offloads))
    runtimes = {name: runtime_called(name) for name in plan.beside}
    way = _way(source, plan)
    finished = {} if plan.again else _read_state(plan.out / STATE_FILE, way)
    state = _State(plan.out / STATE_FILE, way, finished)
    loaded = list({(board := workspace.board(name)).name: board for name in plan.boards}.values())
    compiling = None if ahead is None else ahead.compiling
    shared = Cells(workspace, source, plan, compiling, events)
    refused = {**_refused(shared, loaded, offloads), **_not_beside(source, loaded, runtimes)}
    remember_origin(plan.out, source.path)
    for cell in refused.values():
        state.add(cell)
    known = {**finished, **refused}
    wanted = {board.name: [o for o in offloads if (board.name, o) not in known] for board in loaded}
    besides = [BESIDE + name for name in runtimes]
    open_rounds = {
        board.name: [
            name
            for name, text in zip(runtimes, besides, strict=True)
            if (board.name, text) not in refused
            and (wanted[board.name] or (board.name, text) not in finished)
        ]
        for board in loaded
    }

    board_of: dict[int, Board] = {}

    def candidate(board: Board) -> Candidate:
        def reached(voice: Events) -> Device:
            device = reach(board, voice)
            board_of[id(device)] = board
            return device

        return Candidate(board.name, reached)

    def work(device: Device, voice: Events) -> int:
        board = board_of[id(device)]
        for offload in wanted[board.name]:
            state.add(_measure(shared, board, offload, device, voice))
        if open_rounds[board.name]:
            rows = [state.cells[board.name, offload] for offload in offloads]
            for cell in _in_rounds(shared, rows, open_rounds[board.name], device, voice):
                state.add(cell)
        return len(wanted[board.name])

    todo = [board for board in loaded if wanted[board.name] or open_rounds[board.name]]
    requests = [
        partial(shared.request, board, offload, plan.twin)
        for board in todo
        for offload in wanted[board.name]
        if not parse_way(offload).is_tuned
    ]
    with built_ahead(ahead, requests, events):
        outcomes = on_each([candidate(board) for board in todo], work, events)
    for outcome in outcomes:
        if outcome.error is not None:
            for offload in (*offloads, *besides):
                if (outcome.device, offload) not in state.cells:
                    state.add(_failed(outcome.device, offload, outcome.error.message))
    columns = (*offloads, *besides)
    order = {(board.name, o): place for place, (board, o) in enumerate(_product(loaded, columns))}
    cells = tuple(state.cells[key] for key in sorted(order, key=lambda key: order[key]))
    matrix = Matrix(source.name, source.sha256, __version__, cells)
    return replace(matrix, files=write_reports(matrix, plan.out))


def _product(boards: Sequence[Board], offloads: Sequence[str]) -> list[tuple[Board, str]]:
    return [(board, offload) for board in boards for offload in offloads]


def _refused(
    shared: Cells, boards: Sequence[Board], offloads: Sequence[str]
) -> dict[tuple[str, str], Cell]:
    """Return the cells of offloads that boards can't use; raise the error if there is no other."""
    found: dict[tuple[str, str], Cell] = {}
    refusal: OffloadRefusedError | None = None
    for board, offload in _product(boards, offloads):
        try:
            shared.request(board, offload, twin=False)
        except OffloadRefusedError as error:
            refusal = error
            found[board.name, offload] = unmeasured(
                board.name, offload, "not possible", error.message
            )
        except EdgekitError:
            continue  # said when the cell is measured
    if refusal is not None and len(found) == len(boards) * len(offloads):
        raise refusal
    return found


def _not_beside(
    source: ModelSource, boards: Sequence[Board], runtimes: Mapping[str, Runtime]
) -> dict[tuple[str, str], Cell]:
    """Return the cells of runtimes that can't be timed with the model on a board."""
    found = {}
    for board in boards:
        for name, runtime in runtimes.items():
            if (reason := why_not(runtime, source, board)) is not None:
                cell = unmeasured(board.name, BESIDE + name, "not possible", reason)
                found[board.name, BESIDE + name] = cell
    return found


def _in_rounds(
    shared: Cells, cells: Sequence[Cell], runtimes: Sequence[str], device: Device, events: Events
) -> Iterator[Cell]:
    """Time a board's finished cells and the runtimes in turns."""
    from edgekit.bundle.folder import open_bundle

    done = [cell for cell in cells if cell.status == "done"]
    if not done:
        reason = "no bundle was measured that it could be timed beside"
        for name in runtimes:
            yield unmeasured(cells[0].board, BESIDE + name, "failed", reason)
        return
    rows = {cell: open_bundle(shared.bundle_path(cell.board, cell.offload)) for cell in done}
    yield from beside_cells(shared.source, rows, runtimes, device, shared.plan.bench, events)


def _measure(shared: Cells, board: Board, offload: str, device: Device, events: Events) -> Cell:
    from edgekit.backends.report import offload_in_words
    from edgekit.building.build import build
    from edgekit.verbs.bench import bench
    from edgekit.verbs.verify import raise_if_failed, verify

    try:
        request = shared.request(board, offload, device.ask_measurer() == "emulator")
        search = None
        if parse_way(offload).is_tuned:
            request, search = _searched(shared, request, device, events)
        out = shared.bundle_path(board.name, offload)
        bundle = build(request, out, compiling=shared.compiling, events=events).bundle
        with device.opened(bundle, purpose="matrix", events=events) as session:
            verification = verify(bundle, session, events=events)
            raise_if_failed(verification)
            report = bench(
                bundle, session, shared.plan.bench, events, purpose="matrix", store=request.store
            )
            accuracy = _accuracy(shared.plan.evaluation, bundle, session, request.store, events)
    except EdgekitError as error:
        if isinstance(error, StorageError):
            raise
        events.warn(f"{board.name} with {offload} failed: {error.message}")
        return _failed(board.name, offload, error.message)
    counted = report.counted
    regions = bundle.manifest.regions
    return Cell(
        board=board.name,
        offload=offload,
        status="done",
        error=None,
        device=device.name,
        digest=bundle.digest,
        measured_by=report.measured_by,
        unit="seconds" if counted is None else counted.unit,
        median=report.median if counted is None else float(counted.median),
        p90=report.p90 if counted is None else float(counted.maximum),
        minimum=report.minimum if counted is None else float(counted.minimum),
        runs=report.runs,
        memory=report.memory.model_peak,
        watts=None if report.power is None else report.power.watts,
        joules=None if report.power is None else report.power.joules,
        search_seconds=None if search is None else search.seconds,
        search_joules=None if search is None else search.joules,
        max_error=max((output.max_error for output in verification.outputs), default=None),
        oracle=verification.oracle,
        accuracy=accuracy,
        offloaded=offload_in_words(regions) if regions else "nothing",
        when=now(),
    )


def _accuracy(
    plan: EvaluationPlan | None,
    bundle: Bundle,
    session: Session,
    store: str | None,
    events: Events,
) -> tuple[AccuracyFigure, ...]:
    from edgekit.verbs.evaluation.evaluate import evaluate
    from edgekit.verbs.evaluation.report import raise_if_missed

    if plan is None:
        return ()
    report = evaluate(bundle, session, plan, events=events, purpose="matrix", store=store)
    raise_if_missed(report)
    return report.accuracy


@dataclass(frozen=True)
class _Search:
    seconds: float
    joules: float | None
    """The energy of this machine, which compiles the candidates; None if no sensor tells it."""


def _searched(
    shared: Cells, request: BuildRequest, device: Device, events: Events
) -> tuple[BuildRequest, _Search]:
    from edgekit.devices.linux.observing import observe_this_machine

    with observe_this_machine(True) as observer:
        observer.begin()
        began = time.monotonic()
        request = shared.plan.search(request, device, events)
        took = time.monotonic() - began
        observed = observer.end()
    power = None if observed is None else observed.power
    return request, _Search(took, None if power is None else power.joules)


def _failed(board: str, offload: str, reason: str) -> Cell:
    return unmeasured(board, offload, "failed", reason)


class _State:
    """The finished cells, written to the disk after each one."""

    def __init__(
        self, path: Path, way: Mapping[str, object], finished: Mapping[tuple[str, str], Cell]
    ) -> None:
        self._path = path
        self._way = way
        self._lock = threading.Lock()  # every board has a thread
        self.cells = dict(finished)

    def add(self, cell: Cell) -> None:
        with self._lock, storage_errors("keep the measurements", self._path):
            self.cells[cell.board, cell.offload] = cell
            state = encode(_Saved(_FORMAT, self._way, tuple(self.cells.values())))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(state, indent=1) + "\n")


def _way(source: ModelSource, plan: MatrixPlan) -> dict[str, object]:
    """Return what must be equal for the cells of two sessions to share a report."""
    evaluated = {} if plan.evaluation is None else dict(plain(plan.evaluation))
    return {
        "sha256": source.sha256,
        "shapes": {name: list(shape) for name, shape in source.shapes.items()},
        "edgekit": __version__,
        "twin": plan.twin,
        "plan": asdict(plan.bench),
        "evaluation": {key: value for key, value in evaluated.items() if key != "again"},
        "rules_alone": any(parse_way(offload).is_tuned for offload in plan.offloads),
        "search_seconds": plan.search_seconds,
        "calibration": [str(file.path) for file in plan.calibration],
    }


@dataclass(frozen=True)
class _Saved:
    """The file of an earlier session."""

    format: int
    way: Mapping[str, object]
    cells: tuple[object, ...]


def _read_state(path: Path, way: Mapping[str, object]) -> dict[tuple[str, str], Cell]:
    """Read the cells that an equal earlier session finished. Failed ones are tried again."""
    if not path.exists():
        return {}
    with storage_errors("read the measurements", path):
        data = path.read_bytes()
    try:
        state = decode_json(_Saved, data)
        if state.format != _FORMAT or state.way != way:
            return {}
        cells = [decode(Cell, cell, need_all=True) for cell in state.cells]
    except ValueError as error:
        raise UsageError(
            f"{path} is not what an earlier session wrote",
            hint=f"move it away, or say {option('again')} to measure everything anew",
        ) from error
    return {(cell.board, cell.offload): cell for cell in cells if cell.status == "done"}
