"""A search on this machine with real compilers, a real tracker and real RPC sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import CHECKOUT, command_line, environment, request_for, write_model
from support.compiling import random_array, results_of
from support.faulty_builder import FATAL, FAULT, HANGS
from support.needs import needs
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.processes import command_lines, descendants
from support.relax_modules import relax_of
from support.rpc_lab import eventually, rpc_lab

from edgekit.backends.offloading import compile_model
from edgekit.base.child import Child
from edgekit.base.events import SILENT, Event, Events, StageProgress, Warned
from edgekit.building.request import BuildRequest
from edgekit.building.tuned_kernels import measured_choices
from edgekit.compiler.schedules.choices import (
    EXACTLY,
    Choices,
    TraceChoice,
    choice_as_json,
    choice_from_json,
)
from edgekit.models.model import Model
from edgekit.store.database import close_store, open_store
from edgekit.store.lookup import deliver_waiting
from edgekit.store.tuning import all_records, progress_of, sessions
from edgekit.store.tuning_runs import TuningRecord, TuningSession
from edgekit.tuning.finder import kernels_found
from edgekit.tuning.kernel_states import is_own
from edgekit.tuning.messages import FindTasks
from edgekit.tuning.recorder import Limits, Progress, Searched, recording
from edgekit.tuning.tune import Effort, TuneReport, tune
from edgekit.tuning.tune_devices import DeviceSelection, pool_for

FEW = 8


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("EDGEKIT_STORE", url)
    return url


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    return request_for(write_model(tmp_path / "small.onnx"))


def search(
    request: BuildRequest, trials: int = FEW, *, again: bool = False, events: Events = SILENT
) -> TuneReport:
    pool = pool_for(request.board, DeviceSelection(), {}, 60.0, "tuning", events)
    return tune(request, pool, Effort(trials=trials, again=again), events)


def kept(url: str) -> tuple[list[TuningSession], list[TuningRecord]]:
    opened = open_store(url)
    try:
        return list(sessions(opened)), list(all_records(opened))
    finally:
        close_store(opened)


def workers() -> set[int]:
    """Processes that this one started, and those that these did, for compiling and measuring."""
    lines = command_lines()
    ours = descendants(os.getpid())
    return {pid for pid in ours if any("edgekit" in word for word in lines.get(pid, ()))}


def candidates_in(records: list[TuningRecord]) -> list[tuple[str, str]]:
    """Return kernels and choices, without the rules' own."""
    return [
        (record.workload.key, json.dumps(record.choice, sort_keys=True))
        for record in records
        if not is_own(choice_from_json(record.choice))
    ]


def test_what_a_search_finds_is_kept_used_and_not_searched_for_again(
    request_: BuildRequest, store: str, tmp_path: Path
) -> None:
    first = search(request_)

    assert first.trials == FEW
    assert first.known == 0
    for kernel in first.kernels:
        assert kernel.own_us is not None
        assert kernel.best_us is not None
        assert 0 < kernel.best_us <= kernel.own_us
    ((session,), records) = kept(store)
    assert session.state == "done"
    assert session.id == first.session
    assert all(record.session == first.session for record in records)
    timed = [record for record in records if record.error is None]
    assert timed
    assert all(r.best_us and r.own_us and r.device == "local" for r in timed)
    opened = open_store(store)
    *_, last = progress_of(opened, first.session)
    close_store(opened)
    assert last.trials == FEW
    # A product's trace, which is for one kernel only, and its parameters may both be better.
    better = {k.key.partition(EXACTLY)[0] for k in first.kernels if k.choice is not None}
    used = measured_choices(request_.board.target).of_kernel
    assert better >= {key.partition(EXACTLY)[0] for key in used}

    second = search(request_)

    assert (second.trials, second.known) == (0, FEW)


@pytest.mark.slow
def test_a_longer_search_goes_on_where_the_last_one_ended(
    request_: BuildRequest, store: str, tmp_path: Path
) -> None:
    search(request_)

    more = search(request_, FEW + 4)
    assert (more.trials, more.known) == (4, FEW)
    assert max(Counter(candidates_in(kept(store)[1])).values()) == 1

    other = request_for(write_model(tmp_path / "other.onnx", scale=0.3))
    assert other.source.sha256 != request_.source.sha256
    warm = search(other)
    assert (warm.trials, warm.known) == (0, FEW + 4)

    anew = search(request_, 4, again=True)
    assert (anew.trials, anew.known) == (4, 0)


class _Observed(Child):
    """A child process whose clock is far ahead while a candidate hangs; slow ones have time.

    A limit is set by the true clock, and what came before the hanging is read first.
    """

    _sets_limit = False

    def receive(self, seconds: float) -> Any:
        self._sets_limit = True
        return super().receive(seconds)

    def end(self) -> None:
        super().end()
        if self._runs_candidates:
            self._hangs.unlink(missing_ok=True)

    def _now(self) -> float:
        sets_limit, self._sets_limit = self._sets_limit, False
        ahead = 100_000.0 if self._runs_candidates and self._hangs.exists() else 0.0
        return super()._now() + (0.0 if sets_limit else ahead)

    @property
    def _runs_candidates(self) -> bool:
        return self._module.endswith("runner")

    @property
    def _hangs(self) -> Path:
        return Path(os.environ[HANGS])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["compile", "run", "timeout"])
def test_a_candidate_that_is_fatal_costs_itself_only(
    fault: str,
    request_: BuildRequest,
    store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgekit.tuning.tune.BUILDER", "support.faulty_builder")
    monkeypatch.setenv(FAULT, fault)
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests"))
    hangs = tmp_path / "hangs"
    monkeypatch.setenv(HANGS, str(hangs))
    monkeypatch.setattr("edgekit.tuning.tune.Child", _Observed)
    monkeypatch.setattr("edgekit.tuning.crew._RUN_SECONDS", 600.0)
    before = workers()

    report = search(request_)

    assert report.trials == FEW
    records = kept(store)[1]
    failed = [r for r in records if r.error == fault]
    assert [record.choice for record in failed] == [choice_as_json(FATAL)]
    assert report.errors[fault] == 1
    assert sum(record.best_us is not None for record in records) > FEW // 2
    eventually(lambda: workers() <= before)


@pytest.mark.slow
def test_a_device_whose_agent_is_killed_comes_back_and_the_search_ends_well(
    request_: BuildRequest,
) -> None:
    killed: list[int] = []

    def told(event: Event) -> None:
        if isinstance(event, StageProgress) and event.title == "tune on local" and not killed:
            for pid in descendants(os.getpid()):
                if "--end-with-parent" in command_lines().get(pid, []):
                    killed.append(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    report = search(request_, events=Events(told))

    assert killed
    assert report.trials == FEW
    assert report.errors.get("device", 0) == 0


@pytest.mark.parametrize(
    ("kept_in", "said"),
    [
        (None, "kept: 3 trials of this search; the same command goes on after them"),
        ("off", "lost, because no store is in use: 3 trials of this search"),
    ],
)
def test_a_search_that_is_interrupted_says_whether_its_trials_are_kept(
    kept_in: str | None, said: str, request_: BuildRequest, store: str
) -> None:
    found: list[Event] = []
    about = Searched("cpu", 1, "hardware", "seconds")
    request = replace(request_, store=kept_in or store)
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117
        with recording(request, ["local"], about, Limits(), Events(found.append)) as recorder:
            recorder.add([], Progress(3, 0, 1.0, 1.0))
            raise KeyboardInterrupt
    assert said in [event.text for event in found if isinstance(event, Warned)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_a_search_measured_before_it_was_ended_is_not_measured_again(
    number: signal.Signals, request_: BuildRequest, store: str, tmp_path: Path
) -> None:
    words = ["tune", str(request_.source.path), "--board", "local", "--json", "--trials"]
    with subprocess.Popen(
        command_line(*words, "5000"),
        cwd=tmp_path,
        env=environment({"EDGEKIT_STORE": store}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        eventually(lambda: len(candidates_in(_kept_so_far(store))) > 0)
        family = descendants(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "of this search; the same command goes on after them" in errors
    eventually(lambda: not set(family) & set(command_lines()))
    deliver_waiting(store)  # what was on its way when it was killed
    found = candidates_in(kept(store)[1])

    done = subprocess.run(
        command_line(*words, str(len(found) + 4)),
        cwd=tmp_path,
        env=environment({"EDGEKIT_STORE": store}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["known"] + report["trials"] == len(found) + 4
    (last, before), records = kept(store)
    assert (last.state, before.state) == ("done", "interrupted")
    again = candidates_in(records)
    assert len(again) == len(found) + report["trials"]
    assert max(Counter(again).values()) == 1


def _kept_so_far(url: str) -> list[TuningRecord]:
    file = Path(url.removeprefix("sqlite:///"))
    return kept(url)[1] if file.exists() else []


def network() -> onnx.ModelProto:
    """Kernels of several families, one of several steps."""
    weights = {
        "w0": random_array((24, 3, 3, 3), 0) / np.float32(5),
        "w1": random_array((24, 1, 3, 3), 1) / np.float32(3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["v0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["v0"], ["v1"]),
        helper.make_node("Conv", ["v1", "w1"], ["v2"], pads=[1, 1, 1, 1], group=24),
        helper.make_node("MaxPool", ["v2"], ["v3"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Softmax", ["v3"], ["y"], axis=1),
    ]
    return onnx_model(nodes, {"x": (1, 3, 20, 20)}, ["y"], weights)


def test_kernels_with_schedules_of_metaschedules_give_onnxruntimes_numbers(
    tmp_path: Path,
) -> None:
    onnx.save(network(), tmp_path / "net.onnx")
    request = request_for(tmp_path / "net.onnx")
    target = request.board.target
    order = FindTasks(request.source, target, request.offload, seed=0, yields=False)
    with kernels_found(order, SILENT) as finder:
        traces = {t.key: finder.propose(t.key, 1) for t in finder.tasks if t.traced}
    choices = Choices({key: TraceChoice(found[0]) for key, found in traces.items() if found})
    assert len(choices.of_kernel) >= 3
    data = random_array((1, 3, 20, 20))

    model = Model(request.source, relax_of(network()), (), (), ())
    compiled = compile_model(model, target, choices=choices)

    (result,) = results_of(compiled, [data])
    (expected,) = judged_by_onnxruntime(network(), {"x": data})
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-5)
    assert [rule for _, rule in compiled.rules].count("trace") == len(choices.of_kernel)
    assert {words for _, words in compiled.choices} == {"trace"}


def test_a_trace_of_another_kernel_leaves_the_kernel_to_its_rule(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "net.onnx")
    request = request_for(tmp_path / "net.onnx")
    foreign = TraceChoice(json.dumps([[["GetSBlock", [], ["elsewhere", "main"], ["b0"]]], []]))
    model = Model(request.source, relax_of(network()), (), (), ())
    plain = compile_model(model, request.board.target)

    class Everything(dict[str, TraceChoice]):
        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            return foreign

    compiled = compile_model(
        model, request.board.target, choices=Choices(Everything({"any": foreign}))
    )

    assert compiled.rules == plain.rules
    assert compiled.choices == ()


@pytest.mark.slow
@needs("sshd")
def test_a_device_over_ssh_serves_for_the_time_of_the_search_only(
    tmp_path: Path, store: str
) -> None:
    model = write_model(tmp_path / "small.onnx")
    with rpc_lab(tmp_path / "lab") as lab:
        done = subprocess.run(
            lab.command(
                *("tune", str(model), "--board", "local", "--devices", "desk"),
                *("--trials", "4", "--json"),
            ),
            env={**lab.environment, "EDGEKIT_STORE": store},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        eventually(lambda: not lab.agents())

    assert report["devices"] == ["desk"]
    assert report["trials"] == 4
    assert {record.device for record in kept(store)[1]} == {"desk"}
