"""edgekit bench --boards: measure one model on several boards with several offloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import DevicesFailedError, UsageError
from edgekit.base.wording import counted
from edgekit.cli.console import Console
from edgekit.cli.junit import junit_file

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceChoice
    from edgekit.base.events import Events
    from edgekit.building.request import BuildRequest
    from edgekit.devices.base import BenchPlan
    from edgekit.devices.device import Device
    from edgekit.profiles.board import Board
    from edgekit.project.workspace import WorkspaceData
    from edgekit.verbs.evaluation.evaluate import EvaluationPlan
    from edgekit.verbs.matrix_report import Matrix


_SEARCH_SECONDS = 60.0


@dataclass(frozen=True)
class MatrixOptions:
    """The options of a matrix; `boards` None measures one bundle."""

    boards: str | None = None
    offloads: str | None = None
    out: Path | None = None
    again: bool = False
    data: Path | None = None
    task: str | None = None
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    junit: Path | None = None
    cluster: str | None = None
    beside: str | None = None
    search: float | None = None
    calibration: tuple[str, ...] = ()

    def evaluation(self, workspace: WorkspaceData) -> EvaluationPlan | None:
        """Return what each cell is evaluated on; UsageError for half of it."""
        from edgekit.verbs.evaluation.evaluate import EvaluationPlan

        if self.data is None and self.task is None and not (self.at_least or self.at_most):
            return None
        if self.data is None or self.task is None:
            raise UsageError(
                "an evaluation needs a data set and a task",
                hint="give both --data and --task, as `edgekit evaluate` takes them",
            )
        return EvaluationPlan(
            workspace.path(self.data), self.task, self.at_least, self.at_most, self.again
        )


def run_matrix(
    console: Console, model: Path, chosen: MatrixOptions, plan: BenchPlan, where: DeviceChoice
) -> None:
    from edgekit.api.choice import device_for_board
    from edgekit.api.cluster import compiled_ahead
    from edgekit.api.inputs import input_files
    from edgekit.base.own_folder import own_folder
    from edgekit.tuning.tune import quick_tune
    from edgekit.verbs.junit import cases_of_matrix
    from edgekit.verbs.matrix import measure_matrix
    from edgekit.verbs.matrix_plan import MatrixPlan

    setting = console.workspace.on_cluster(chosen.cluster).setting
    source = setting.data.model(model, {}, {}, only_to_show=True)

    def reach(board: Board, events: Events) -> Device:
        twin = where.twin and not board.is_host
        return device_for_board(setting, board, twin=twin, timeout=where.timeout)

    seconds = chosen.search or _SEARCH_SECONDS

    def search(request: BuildRequest, device: Device, events: Events) -> BuildRequest:
        return quick_tune(request, device, seconds, events)[0]

    asked = MatrixPlan(
        _words(chosen.boards or ""),
        _words(chosen.offloads or "auto"),
        chosen.out or own_folder(setting.data.start, f"{source.name}-matrix", source.path),
        plan,
        search,
        seconds,
        where.twin,
        chosen.again,
        chosen.evaluation(setting.data),
        _words(chosen.beside or ""),
        input_files(chosen.calibration, setting.data.start),
    )
    with (
        compiled_ahead(setting, source.format) as ahead,
        junit_file(chosen.junit, "bench", source.name) as cases,
    ):
        matrix = measure_matrix(setting.data, source, asked, reach, console.events, ahead)
        cases += cases_of_matrix(matrix)
    console.report(matrix, lambda: _render(console, matrix))
    if matrix.failed:
        raise DevicesFailedError(
            f"{len(matrix.failed)} of {counted(len(matrix.cells), 'measurement')} failed",
            hint="fix the causes and run the same command again: finished cells are not repeated",
            details=tuple(f"{c.board} with {c.offload}: {c.error}" for c in matrix.failed),
        )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _render(console: Console, matrix: Matrix) -> None:
    from edgekit.verbs.matrix_report import HEADS, caution, row_of

    console.heading(matrix.model)
    console.table(
        HEADS,
        [[text or None for text in row_of(cell)] for cell in matrix.cells],
        right=("median", "p90", "fastest", "memory", "watts", "energy", "max error", "accuracy"),
        spare=("energy", "watts", "search", "fastest", "p90", "memory", "max error"),
    )
    if text := caution(matrix):
        console.print(text)
    for path in matrix.files:
        console.print(f"wrote {path}")
