"""Tuned kernels travel in MetaSchedule's own files: stock TVM's are read, and it reads ours."""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.building import run_edgekit
from support.stores import A_WORKLOAD, a_record, save_records

from edgekit.base.errors import InputError
from edgekit.base.events import Event, Events, Warned
from edgekit.base.tvm_compat import load_tensor_intrinsics, load_tvm
from edgekit.compiler.schedules.choices import choice_from_json
from edgekit.profiles.cpu import Target
from edgekit.store.database import close_store, open_store
from edgekit.store.lookup import best_records
from edgekit.store.tuning import all_records
from edgekit.tuning.metaschedule_files import (
    RECORDS,
    WORKLOADS,
    _record_line,
    _trace,
    export_metaschedule,
    import_metaschedule,
)

SIZE = 32
TARGET = Target("llvm", "x86_64-linux-gnu", "x86-64", (), 2)
SECONDS = (0.001, 0.002)


def kernel() -> Any:
    """A matrix product and a ReLU."""
    tvm = load_tvm()
    from tvm import te

    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "ab")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((SIZE, SIZE), lambda i, j: te.max(c[i, j], 0), name="d")
    return tvm.IRModule({"main": te.create_prim_func([a, b, d])})


def tvm_target() -> Any:
    return load_tvm().target.Target(json.loads(TARGET.as_json()))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What TVM's own search leaves, with measurements that take no time."""
    load_tensor_intrinsics()
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult

    @derived_object
    class Builder(PyBuilder):
        def build(self, inputs: Any) -> list[Any]:
            return [BuilderResult("nowhere", None) for _ in inputs]

    @derived_object
    class Timed(PyRunnerFuture):
        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return RunnerResult(list(SECONDS), None)

    @derived_object
    class Runner(PyRunner):
        def run(self, inputs: Any) -> list[Any]:
            return [Timed() for _ in inputs]

    folder = tmp_path_factory.mktemp("tuned")
    # TVM's set-up of this logger fails on handlers without a name, which other packages of this
    # process may have added.
    logging.getLogger("tvm.s_tir.meta_schedule").handlers.clear()
    ms.tune_tir(
        kernel(),
        tvm_target(),
        str(folder),
        max_trials_global=4,
        num_trials_per_iter=4,
        builder=Builder(),
        runner=Runner(),
        strategy="replay-trace",
        cost_model="random",
        measure_callbacks=[ms.measure_callback.AddToDatabase()],
        # The same four traces in every run: of threads, whichever comes first draws first.
        num_tuning_cores=1,
        seed=1,
    )
    return folder


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def copied(tuned: Path, folder: Path) -> Path:
    folder.mkdir()
    for name in (WORKLOADS, RECORDS):
        (folder / name).write_bytes((tuned / name).read_bytes())
    return folder


def test_what_stock_tuning_wrote_is_known_then(tuned: Path, tmp_path: Path) -> None:
    extra = {"EDGEKIT_STORE": f"sqlite:///{tmp_path / 's.db'}"}
    count = len(lines(tuned / RECORDS))
    first = run_edgekit("results", "import", str(tuned), folder=tmp_path, extra=extra)
    again = run_edgekit("results", "import", str(tuned), folder=tmp_path, extra=extra)
    assert first.code == again.code == 0, first.err
    assert f"{count} new records in" in first.out
    assert f"0 new records in {tmp_path / 's.db'}, {count} known already" in again.out

    store = open_store(extra["EDGEKIT_STORE"])
    records = all_records(store)
    assert len(records) == count
    for record in records:
        assert record.best_us == pytest.approx(1500.0)
        assert record.workload.target == TARGET.as_json()
        assert choice_from_json(record.choice)
    assert (
        len(best_records(TARGET.as_json(), records[0].workload.version, extra["EDGEKIT_STORE"]))
        == 1
    )
    close_store(store)


def test_stock_tvm_reads_what_is_exported_and_its_numbers_are_numpys(
    tuned: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    import_metaschedule(tuned, url)
    out = tmp_path / "out"
    ran = run_edgekit(
        *("results", "export", str(out), "--format", "metaschedule", "--store", url),
        folder=tmp_path,
    )
    assert ran.code == 0, ran.err
    hashes = [[line[0] for line in lines(folder / WORKLOADS)] for folder in (out, tuned)]
    assert hashes[0] == hashes[1]
    ours, theirs = (
        sorted(([r[0], r[1][0], *r[1][2:]] for r in lines(folder / RECORDS)), key=json.dumps)
        for folder in (out, tuned)
    )
    assert ours == theirs, "traces with all of MetaSchedule's own steps, targets and arguments"

    tvm = load_tvm()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    database = JSONDatabase(work_dir=str(out))
    assert len(database) == len(ours)
    found = database.query_tuning_record(kernel(), tvm_target(), "main")
    assert [float(seconds) for seconds in found.run_secs] == [pytest.approx(0.0015)]
    schedule = tvm.s_tir.Schedule(found.workload.mod)
    found.trace.apply_to_schedule(schedule, remove_postproc=False)
    run = tvm.compile(schedule.mod, target="llvm")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE)).astype("float32") for _ in range(2))
    answer = tvm.runtime.tensor(np.zeros((SIZE, SIZE), "float32"))
    run["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), answer)
    np.testing.assert_allclose(answer.numpy(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


def test_a_stores_own_records_come_back_to_it_as_known(tuned: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    import_metaschedule(tuned, url)
    store = open_store(url)
    (record, *_) = all_records(store)
    trace = str(record.choice["trace"]).replace("[1,0]", "[true,false]")
    mine = replace(record, id="a" * 32, device="kitchen", best_us=7.0, own_us=9.0)
    save_records(store, [replace(mine, choice={"family": "trace", "trace": trace})])
    close_store(store)
    export_metaschedule(tmp_path / "out", url)
    assert import_metaschedule(tmp_path / "out", url).new == 0
    other = import_metaschedule(tmp_path / "out", f"sqlite:///{tmp_path / 'other.db'}")
    assert other.new == other.runs == len(lines(tuned / RECORDS)) + 1


def test_an_emulators_times_are_not_exported_as_a_boards(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    target = json.dumps({"emulated": json.loads(TARGET.as_json())})
    record = a_record(
        workload=replace(A_WORKLOAD, target=target, module="{}"),
        choice={"family": "trace", "trace": "[]"},
    )
    store = open_store(url)
    save_records(store, [record])
    close_store(store)
    heard: list[Event] = []
    assert export_metaschedule(tmp_path / "out", url, Events(heard.append)).runs == 0
    warned = [event.text for event in heard if isinstance(event, Warned)]
    assert warned == ["records that an emulator timed are left out: 1"]


def test_a_store_without_traces_exports_an_empty_database(tmp_path: Path) -> None:
    done = export_metaschedule(tmp_path / "out", f"sqlite:///{tmp_path / 's.db'}")
    assert done.runs == 0
    load_tvm()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    assert len(JSONDatabase(work_dir=str(tmp_path / "out"))) == 0


def edited(line: Any, trace: list[Any]) -> Any:
    place, (_, *others) = line
    return [place, [trace, *others]]


def test_what_edgekit_can_not_use_is_left_out(tuned: Path, tmp_path: Path) -> None:
    """Steps that could run a stranger's code, times of failures, processors that are none."""
    folder = copied(tuned, tmp_path / "odd")
    good = lines(tuned / RECORDS)[0]
    pragma = [[["Annotate", ["b0", '"x"'], ["pragma_import_llvm"], []]], []]
    odd = [
        edited(good, pragma),
        [0, [good[1][0], [1e10], good[1][2], good[1][3]]],
        [0, [good[1][0], None, good[1][2], good[1][3]]],
        [0, [*good[1][:2], {"kind": "cuda", "arch": "sm_90"}, good[1][3]]],
        good,
    ]
    (folder / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in odd))
    done = import_metaschedule(folder, f"sqlite:///{tmp_path / 's.db'}")
    assert (done.runs, done.new) == (1, 1)


@pytest.mark.parametrize(
    "module", ["", "####", base64.b64encode(b'{"root_index": 1, "nodes": []}').decode()]
)
def test_a_workload_that_tvm_can_not_read_takes_nothing_down(
    tuned: Path, tmp_path: Path, module: str
) -> None:
    folder = copied(tuned, tmp_path / "odd")
    (folder / WORKLOADS).write_text(json.dumps(["123", module]) + "\n")
    url = f"sqlite:///{tmp_path / 's.db'}"
    try:
        assert import_metaschedule(folder, url).runs == 0
    except InputError as error:
        assert error.hint


@pytest.mark.parametrize("name", [WORKLOADS, RECORDS])
@pytest.mark.parametrize("text", ["{}\n", "[1]\n", "[" * 100_000, '[0, [[], [], {"kind"', '["a"]'])
def test_half_a_file_is_refused_as_a_whole(
    tuned: Path, tmp_path: Path, name: str, text: str
) -> None:
    folder = copied(tuned, tmp_path / "odd")
    with (folder / name).open("a") as stream:
        stream.write(text)
    with pytest.raises(InputError, match=name):
        import_metaschedule(folder, f"sqlite:///{tmp_path / 's.db'}")
    assert not (tmp_path / "s.db").exists()


def test_a_folder_of_something_else_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=WORKLOADS):
        import_metaschedule(tmp_path, f"sqlite:///{tmp_path / 's.db'}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(JSON)
def test_whatever_a_line_of_records_holds_is_refused_in_a_sentence(document: Any) -> None:
    with pytest.raises(InputError):
        _record_line(document, 3)


@given(JSON)
def test_whatever_stands_for_a_trace_is_none(document: Any) -> None:
    assert _trace(document) in (None, "[[],[]]")
