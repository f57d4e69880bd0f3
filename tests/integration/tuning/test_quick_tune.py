"""A quick search on this machine: what it finds is kept, right, and used without being asked."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import (
    CHECKOUT,
    command_line,
    environment,
    request_for,
    run_edgekit,
    write_model,
)
from support.compiling import random_array, results_of
from support.examples import a_third_of
from support.faulty_builder import FATAL, FAULT
from support.needs import needs
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.relax_modules import relax_of
from support.rpc_lab import eventually, rpc_lab
from support.stores import save_records

from edgekit.backends.offloading import compile_model
from edgekit.base.events import SILENT, Event, Events, Warned
from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.building.tuned_kernels import tuned_kernels
from edgekit.compiler.schedules.choices import Choices
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import Model
from edgekit.store.database import close_store, open_store
from edgekit.store.moments import now
from edgekit.store.tuning import all_records, kernels_of, progress_of, records_of_session, sessions
from edgekit.tuning.finder import kernels_found
from edgekit.tuning.messages import FindTasks, Task
from edgekit.tuning.runner import is_as_right
from edgekit.tuning.tune import quick_tune

LONG = 600.0
SHAPE = (1, 3, 20, 20)


def network() -> onnx.ModelProto:
    """One kernel of each family."""
    weights = {
        "w0": random_array((24, 3, 3, 3), 0) / np.float32(5),
        "w1": random_array((24, 1, 3, 3), 1) / np.float32(3),
        "w2": random_array((40, 24, 1, 1), 2) / np.float32(5),
        "b0": random_array((24,), 3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["v0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["v0"], ["v1"]),
        helper.make_node("Conv", ["v1", "w1"], ["v2"], pads=[1, 1, 1, 1], group=24),
        helper.make_node("Conv", ["v2", "w2"], ["v3"]),
        helper.make_node("MaxPool", ["v3"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return onnx_model(nodes, {"x": SHAPE}, ["y"], weights)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("EDGEKIT_STORE", "")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    return path


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> FindTasks:
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(network(), path)
    request = request_for(path)
    return FindTasks(request.source, request.board.target, request.offload, seed=0, yields=False)


@pytest.fixture(scope="module")
def kernels(order: FindTasks) -> tuple[Task, ...]:
    with kernels_found(order, SILENT) as finder:
        return tuple(task for task in finder.tasks if task.candidates)


@pytest.mark.slow
def test_every_kernel_with_choices_is_measured_once(model: Path) -> None:
    request = request_for(model)
    heard: list[Event] = []

    _, first = quick_tune(request, LocalDevice(), LONG, Events(heard.append))
    found = tuned_kernels(request.board.target)
    _, second = quick_tune(request, LocalDevice(), LONG)

    assert first is not None
    assert second is not None
    assert len(first.kernels) == len(found) >= 4
    assert {kernel.partition("-")[0] for kernel in found} == {"product", "kernel"}
    for kernel in first.kernels:
        assert kernel.own_us is not None
        assert kernel.best_us is not None
        assert 0 < kernel.best_us <= kernel.own_us
        assert (kernel.choice is None) == (kernel.best_us == kernel.own_us)
    assert (second.trials, second.known) == (0, first.trials)
    store = open_store()
    again, session = sessions(store)
    assert session.state == again.state == "done"
    assert {kernel.key for kernel in kernels_of(store, session.id)} == set(found)
    assert kernels_of(store, again.id) == ()
    assert not any(record.choice["family"] == "trace" for record in all_records(store))
    *_, last = progress_of(store, session.id)
    assert last.own_us == pytest.approx(first.own_us)
    assert last.best_us == pytest.approx(first.best_us)
    assert last.trials == first.trials
    close_store(store)


def test_no_time_left_measures_nothing_and_changes_nothing(model: Path) -> None:
    request = request_for(model)

    after, found = quick_tune(request, LocalDevice(), 0.0)

    assert found is not None
    assert found.trials == 0
    assert after == request
    assert not tuned_kernels(request.board.target)


def test_without_a_store_a_search_serves_its_own_build_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", "off")
    monkeypatch.setattr("edgekit.building.tuned_kernels.WORTH_IT", 10.0)
    request = request_for(write_model(tmp_path / "small.onnx"))
    heard: list[Event] = []

    after, found = quick_tune(request, LocalDevice(), LONG, Events(heard.append))

    said = [event.text for event in heard if isinstance(event, Warned)]
    assert sum("not saved" in text for text in said) == 1
    assert found is not None
    assert after.choices.of_kernel == {k.key: k.choice for k in found.kernels if k.choice}
    assert not list((tmp_path / "data").rglob("*"))


@pytest.mark.parametrize("place", a_third_of(range(1, 14)))
def test_whatever_is_chosen_the_numbers_are_onnxruntimes(
    place: int, order: FindTasks, kernels: tuple[Task, ...]
) -> None:
    model = Model(order.source, relax_of(network()), (), (), ())
    others = {kernel.key: kernel.candidates for kernel in kernels}
    choices = Choices({key: some[place % len(some)] for key, some in others.items() if some})
    data = random_array(SHAPE)

    compiled = compile_model(model, order.target, choices=choices)

    (found,) = results_of(compiled, [data])
    (expected,) = judged_by_onnxruntime(network(), {"x": data})
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-4)
    taken = {choice for _, choice in compiled.choices}
    assert taken
    assert taken <= {choice.words for choice in choices.of_kernel.values()}


@pytest.mark.slow
def test_the_others_are_measured_where_one_candidate_is_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.tuning.tune.BUILDER", "support.faulty_builder")
    monkeypatch.setenv(FAULT, "compile")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests"))
    request = request_for(write_model(tmp_path / "small.onnx"))

    _, found = quick_tune(request, LocalDevice(), LONG)

    assert found is not None
    assert found.errors["compile"] == 1
    assert any(kernel.key.startswith("product") for kernel in found.kernels)
    assert all(kernel.own_us is not None for kernel in found.kernels)
    assert all(kernel.choice != FATAL for kernel in found.kernels)


def test_one_wrong_number_in_many_stands_out(tmp_path: Path) -> None:
    tvm = load_tvm()
    from edgekit.tuning.scheduled_kernels import far_apart_kernel

    shape = (1, 64, 64, 33)
    kernel = far_apart_kernel(TensorSpec("output", "float32", shape))
    run = tvm.compile(tvm.IRModule({"main": kernel}), target="llvm")
    right = random_array(shape)
    rounded = right * (1 + random_array(shape, 1) * np.float32(1e-6))
    wrong, lost = right.copy(), right.copy()
    wrong[0, 63, 63, 32] += 0.5
    lost[0, 0, 0, 0] = np.nan

    def far(other: np.ndarray) -> float:
        answer = tvm.runtime.tensor(np.zeros(1, "float32"))
        run["main"](tvm.runtime.tensor(right), tvm.runtime.tensor(other), answer)
        return float(answer.numpy()[0])

    assert is_as_right(far(right))
    assert is_as_right(far(rounded))
    assert not is_as_right(far(wrong))
    assert not is_as_right(far(lost))


def test_a_later_build_uses_what_was_measured_and_says_so(tmp_path: Path) -> None:
    model = write_model(tmp_path / "small.onnx")
    extra = {"XDG_DATA_HOME": str(tmp_path / "data")}
    plain = run_edgekit("build", str(model), "-b", "local", folder=tmp_path, extra=extra)
    tuned = run_edgekit(
        *("build", str(model), "-b", "local", "--quick-tune", "5m"), folder=tmp_path, extra=extra
    )
    store = open_store(f"sqlite:///{tmp_path / 'data' / 'edgekit' / 'measurements.db'}")
    (session,) = sessions(store)
    product = next(r for r in records_of_session(store, session.id) if "unrolled" in r.choice)
    assert product.own_us is not None
    other = 2 if "unrolled 8" in " ".join(tuned.out.split()) else 8
    choice = {**product.choice, "unrolled": other}
    better = {"best_us": product.own_us / 10, "measured_at": now(), "choice": choice}
    save_records(store, [replace(product, id="f" * 32, **better)])  # type: ignore[arg-type]
    close_store(store)

    later = run_edgekit("build", str(model), "-b", "local", folder=tmp_path, extra=extra)
    again = run_edgekit("build", str(model), "-b", "local", folder=tmp_path, extra=extra)

    assert plain.code == tuned.code == later.code == again.code == 0, tuned.err + later.err
    assert "product, measured" not in plain.out
    assert f"unrolled {other}" in " ".join(later.out.split())
    assert "from the cache" not in later.out
    assert "from the cache" in again.out


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(model: Path, tmp_path: Path) -> None:
    command = command_line("build", str(model), "-b", "local", "--quick-tune", "5m")
    cache = tmp_path / "cache"
    extra = {"XDG_DATA_HOME": str(tmp_path / "data"), "EDGEKIT_CACHE_DIR": str(cache)}
    url = f"sqlite:///{tmp_path / 'data' / 'edgekit' / 'measurements.db'}"
    store = open_store(url)
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        eventually(lambda: bool(all_records(store)))
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=300)

    assert running.returncode != 0
    (session,) = sessions(store)
    assert session.state == "interrupted"
    assert kernels_of(store, session.id)
    assert progress_of(store, session.id)
    assert not list(cache.glob("scratch*"))
    close_store(store)


@pytest.mark.slow
@needs("sshd")
def test_a_device_over_ssh_is_measured_through_its_agent(tmp_path: Path) -> None:
    model = write_model(tmp_path / "small.onnx")
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with rpc_lab(tmp_path / "lab") as lab:
        done = subprocess.run(
            lab.command(
                *("build", str(model), "--board", "local", "--device", "desk"),
                *("--quick-tune", "5m", "-o", str(tmp_path / "bundle")),
            ),
            env={**lab.environment, "EDGEKIT_STORE": url},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        eventually(lambda: not lab.agents())

    store = open_store(url)
    assert {record.device for record in all_records(store)} == {"desk"}
    close_store(store)


@pytest.mark.parametrize("arguments", [("--again",), ("--twin",), ("--device", "local")])
def test_options_of_a_search_need_one(arguments: tuple[str, ...], model: Path) -> None:
    told = run_edgekit("build", str(model), "-b", "local", *arguments, folder=model.parent)

    assert told.code == 2
    assert "--quick-tune" in told.err


@pytest.mark.parametrize("text", ["0", "soon", "-3s", "5 weeks", "1e9"])
def test_a_time_is_a_number_and_a_unit(text: str, model: Path) -> None:
    told = run_edgekit("build", str(model), "--quick-tune", text, folder=model.parent)

    assert told.code == 2
    assert "60s" in told.err
