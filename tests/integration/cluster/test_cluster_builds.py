"""What a cluster compiles is what this host compiles, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

import pytest
from support.building import CHECKOUT, contents, request_for, write_model
from support.faulty_builder import FATAL, FAULT
from support.needs import needs

from edgekit.building.build import build
from edgekit.building.key import packages_of
from edgekit.compiler.schedules.choices import choice_as_json
from edgekit.profiles.board import toolchain_of
from edgekit.project.workspace import open_workspace
from edgekit.store.database import close_store, open_store
from edgekit.store.tuning import all_records
from edgekit.tuning.tune import Effort, tune
from edgekit.tuning.tune_devices import DeviceSelection, pool_for

pytestmark = needs("dask")

FEW = 8


@contextmanager
def workers(count: int, board: str) -> Iterator[object]:
    from support.cluster_tasks import local_cluster

    from edgekit.cluster.fitness import needs_of
    from edgekit.profiles.board import load_board

    toolchain = toolchain_of(load_board(board))
    with local_cluster(count, needs_of([toolchain], packages_of("onnx"))) as (cluster, _):
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    with workers(1, "local") as running:
        yield running


@pytest.mark.parametrize(
    "board", ["local", pytest.param("microbit-v2", marks=needs("gcc-arm"))], ids=["library", "c"]
)
def test_a_bundle_is_the_same(board: str, cluster: object, tmp_path: Path) -> None:
    from edgekit.cluster.compiling import compiling_on

    request = request_for(write_model(tmp_path / "small.onnx"), board)
    compiling = compiling_on(lambda: nullcontext(cluster))  # type: ignore[arg-type, return-value]

    build(request, tmp_path / "here", use_cache=False)
    build(request, tmp_path / "there", use_cache=False, compiling=compiling)

    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def _no_search(request: object, device: object, events: object) -> NoReturn:
    raise AssertionError("no column is tuned")


def test_a_matrix_is_built_ahead(cluster: object, tmp_path: Path) -> None:
    from edgekit.cluster.compiling import compiling_on
    from edgekit.devices.base import BenchPlan
    from edgekit.devices.choice import device_for
    from edgekit.verbs.ahead import Ahead
    from edgekit.verbs.matrix import MatrixPlan, measure_matrix

    compiled = []

    def entered() -> object:
        compiled.append(True)
        return nullcontext(cluster)

    workspace = open_workspace(tmp_path)
    source = workspace.model(write_model(tmp_path / "small.onnx", scale=0.3), {}, {})
    once = BenchPlan(0, 1, 0.0, None, 1)
    plan = MatrixPlan(["local"], ["none"], tmp_path / "out", once, _no_search, 0.0)
    matrix = measure_matrix(
        workspace,
        source,
        plan,
        lambda board, events: device_for(board, None, {}, 60.0, events),
        ahead=Ahead(compiling_on(entered), 2),  # type: ignore[arg-type]
    )

    assert [cell.status for cell in matrix.cells] == ["done"]
    assert len(compiled) == 1


@pytest.mark.slow
def test_a_search_compiles_on_workers_and_a_fatal_candidate_costs_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("EDGEKIT_STORE", url)
    monkeypatch.setattr("edgekit.tuning.tune.BUILDER", "support.faulty_builder")
    monkeypatch.setenv(FAULT, "compile")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests"))
    request = request_for(write_model(tmp_path / "small.onnx"))
    pool = pool_for(request.board, DeviceSelection(), {}, 60.0, "tuning")

    report = tune(request, pool, Effort(trials=FEW), cluster=workers(2, "local"))  # type: ignore[arg-type]

    opened = open_store(url)
    records = list(all_records(opened))
    close_store(opened)
    assert report.trials == FEW
    failed = [record for record in records if record.error == "compile"]
    assert [record.choice for record in failed] == [choice_as_json(FATAL)]
    assert sum(record.best_us is not None for record in records) > FEW // 2
