"""`edgekit.Workspace` with real parts: this machine, its compiler, the command line beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import psutil
import pytest
from support.building import run_edgekit
from support.local_bundles import built_bundle

import edgekit
from edgekit.base.events import StageStarted


@dataclass(frozen=True)
class Built:
    folder: Path
    model: Path
    bundle: edgekit.Bundle

    def json_of(self, *words: object) -> dict[str, object]:
        done = run_edgekit(*map(str, words), "--json", folder=self.folder)
        assert done.code == 0, done.err
        document = json.loads(done.out)
        assert isinstance(document, dict)
        return document

    def oracle(self, image: np.ndarray) -> np.ndarray:
        session = onnxruntime.InferenceSession(str(self.model))
        (features,) = session.run(None, {"image": image})
        return np.asarray(features)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("api")
    model, bundle = built_bundle(folder)
    (folder / "edgekit.toml").write_text(f'schema = 1\nmodel = "{model}"\nboard = "local"\n')
    return Built(folder, model, bundle)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{tmp_path / 'measurements.db'}")


@pytest.fixture
def workspace(built: Built) -> edgekit.Workspace:
    return edgekit.Workspace(built.folder)


def an_image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, 8, 8)).astype(np.float32)


def test_arrays_go_in_and_the_oracles_numbers_come_out(
    built: Built, workspace: edgekit.Workspace
) -> None:
    images = [an_image(seed) for seed in range(3)]

    with workspace.device("local").open(built.bundle) as session:
        one = session.run({"image": images[0]})
        many = list(session.run_all({"image": image} for image in images))
    again = workspace.run(str(built.bundle.path), {"image": images[0].tolist()})

    assert list(one) == ["features"]
    for image, outputs in zip([images[0], *images, images[0]], [one, *many, again], strict=True):
        np.testing.assert_allclose(outputs["features"], built.oracle(image), atol=1e-5)


def test_a_workspace_works_in_its_folder_and_not_in_the_current_one(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edgekit.toml").write_text("this is no TOML at all")

    bundle = edgekit.Workspace(built.folder).build(built.model)

    assert bundle.path.parent == built.folder / "build"
    assert bundle.manifest.board.name == "local"
    assert [path.name for path in tmp_path.iterdir()] == ["edgekit.toml"]


def test_a_measurement_is_kept_and_found_again(built: Built, workspace: edgekit.Workspace) -> None:
    report = workspace.bench(built.bundle, runs=12, seconds=0, warmup=0)
    with workspace.device("local").open(built.bundle) as session:
        later = session.bench(runs=11, seconds=0, warmup=0)

    assert len(report.nanoseconds) == report.runs >= 12
    assert report.nanoseconds.dtype == np.int64
    assert report.median * 1e9 == pytest.approx(np.median(report.nanoseconds), abs=1)
    kept = workspace.result(report.kept_as or "")
    assert kept.nanoseconds.tolist() == report.nanoseconds.tolist()
    listed = workspace.results(device="local", last=2)
    assert [run.id for run in listed.runs] == [later.kept_as, report.kept_as]
    assert workspace.compare(report.kept_as or "", "latest").after.id == later.kept_as


def test_reports_are_what_the_command_line_prints(
    built: Built, workspace: edgekit.Workspace
) -> None:
    run = workspace.bench(built.bundle, runs=10, seconds=0).kept_as
    before = workspace.bench(built.bundle, runs=10, seconds=0).kept_as
    assert run and before

    for report, command in (
        (workspace.inspect(), ["inspect"]),
        (workspace.partition(), ["partition"]),
        (workspace.result(run), ["results", "show", run]),
        (workspace.results(last=2), ["results", "list", "--last", "2"]),
        (workspace.compare(before, run), ["results", "compare", before, run]),
        (workspace.recommend(), ["recommend"]),
    ):
        assert report.to_dict() == built.json_of(*command)
        assert "\n" not in str(report)
        assert report._repr_html_().startswith("<div>")
    for timed, command in (
        (workspace.verify(built.bundle), ["verify", built.bundle.path]),
        (workspace.deploy(out="deployed"), ["deploy", "-o", built.folder / "deployed"]),
    ):
        found, printed = timed.to_dict(), built.json_of(*command)
        assert shape_of(found) == shape_of(printed)


def shape_of(document: object) -> object:
    """The keys of a document: what a second run with other times prints again."""
    if isinstance(document, dict):
        return {key: shape_of(value) for key, value in document.items()}
    if isinstance(document, list):
        return [shape_of(item) for item in document if isinstance(item, dict)]
    return None


def test_quantizing_keeps_the_accuracy_in_the_report(
    built: Built, workspace: edgekit.Workspace, tmp_path: Path
) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    for seed in range(4):
        np.save(samples / f"{seed}.npy", an_image(seed))

    report = workspace.quantize(
        built.model, samples, tmp_path / "small.onnx", per_channel=False, accept_noise=True
    )

    assert (report.samples, report.settings.per_channel) == (4, False)
    assert (tmp_path / "small.onnx").exists()


def test_mistakes_are_named_before_anything_is_done(
    built: Built, workspace: edgekit.Workspace
) -> None:
    with pytest.raises(TypeError, match="bord"):
        workspace.build(bord="local")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="run"):
        workspace.bench(built.bundle, run=3)  # type: ignore[call-arg]
    with pytest.raises(edgekit.EdgekitError, match="no device 'pi'"):
        workspace.device("pi")
    with pytest.raises(edgekit.EdgekitError, match="no input named 'imag'"):
        workspace.run(built.bundle, {"imag": an_image()})
    with pytest.raises(edgekit.EdgekitError, match="there is no file"):
        workspace.build("nowhere.onnx")


def test_cancelled_work_leaves_nothing_running(built: Built) -> None:
    token = edgekit.Cancellation()

    def cancel_when_measuring(event: edgekit.Event) -> None:
        if isinstance(event, StageStarted) and event.title.startswith("measure on"):
            threading.Timer(0.02, token.cancel).start()

    workspace = edgekit.Workspace(built.folder, events=cancel_when_measuring, cancel=token)
    before = workers()

    with pytest.raises(edgekit.EdgekitError, match="cancelled"):
        workspace.bench(built.bundle, seconds=300)

    assert workers() == before
    with pytest.raises(edgekit.EdgekitError, match="cancelled"):
        workspace.build()
    assert edgekit.Workspace(built.folder).run(built.bundle).keys() == {"features"}


def workers() -> set[psutil.Process]:
    """Return this process's workers; other tests keep some."""
    return {child for child in psutil.Process().children() if is_worker(child)}


def is_worker(child: psutil.Process) -> bool:
    try:
        return "edgekit.devices.local" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        return False


def test_a_listener_that_raises_ends_the_work(built: Built) -> None:
    def stop(event: edgekit.Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edgekit.Workspace(built.folder, events=stop).bench(built.bundle, seconds=300)


def test_making_a_workspace_loads_neither_tvm_nor_numpy() -> None:
    script = "import sys, edgekit; edgekit.Workspace(); print(sorted(sys.modules))"

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert not {"'tvm'", "'numpy'", "'onnx'"} & set(loaded.strip("[]\n").split(", "))
