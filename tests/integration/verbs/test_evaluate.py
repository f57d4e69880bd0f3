"""edgekit evaluate, on bundles that were built for real and run on this machine."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from PIL import Image
from support.building import Ran, run_edgekit
from support.junit import outcomes, told
from support.onnx_models import onnx_model

import edgekit
from edgekit.base.errors import AccuracyError, InputError, UsageError
from edgekit.base.events import Event, StageProgress
from edgekit.base.wording import percent
from edgekit.verbs.evaluation.report import raise_if_missed

RANDOM = np.random.default_rng(11)
NAMES = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu"]
PROJECT = """
schema = 1
model = "animals.onnx"

[preprocess.picture]
layout = "NCHW"
color = "gray"
scale = 0.00392156862745098
"""


@dataclass(frozen=True)
class Classified:
    folder: Path
    model: Path
    data: Path
    labels: np.ndarray
    scores: np.ndarray
    """What onnxruntime computes of the pictures, in the order of their names."""

    @property
    def ws(self) -> edgekit.Workspace:
        return edgekit.Workspace(self.folder)

    def edgekit(self, *arguments: object) -> Ran:
        return run_edgekit(*map(str, arguments), folder=self.folder)

    def ranks(self) -> np.ndarray:
        return np.argsort(-self.scores, axis=1, kind="stable")


def _sample_of(event: Event) -> int | None:
    """Return which sample an event is about."""
    if isinstance(event, StageProgress) and event.title.startswith("evaluate"):
        return event.done
    return None


def pixels_of(picture: Path) -> np.ndarray:
    """Return what the classifier takes."""
    with Image.open(picture) as image:
        return (np.asarray(image) / 255.0).astype(np.float32).reshape(1, 1, 8, 8)


def write_classifier(path: Path, weights: np.ndarray) -> Path:
    nodes = [
        helper.make_node("Conv", ["picture", "kernels"], ["sums"]),
        helper.make_node("Flatten", ["sums"], ["scores"]),
    ]
    kernels = np.ascontiguousarray(weights.T.reshape(7, 1, 8, 8))
    onnx.save(onnx_model(nodes, {"picture": [1, 1, 8, 8]}, ["scores"], {"kernels": kernels}), path)
    return path


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory) -> Classified:
    """A classifier of noisy prototypes, which is right about some of the pictures."""
    folder = tmp_path_factory.mktemp("classified")
    (folder / "edgekit.toml").write_text(PROJECT)
    random = np.random.default_rng(5)
    prototypes = random.uniform(0, 1, (7, 64)).astype(np.float32)
    model = write_classifier(folder / "animals.onnx", (prototypes - prototypes.mean(0)).T)
    session = onnxruntime.InferenceSession(str(model))
    labels, scores = [], []
    for number, name in enumerate(NAMES):
        (folder / "data" / name).mkdir(parents=True)
        for index in range(6):
            noisy = np.clip(prototypes[number] + random.normal(0, 0.9, 64), 0, 1)
            pixels = np.rint(noisy * 255).astype(np.uint8).reshape(8, 8)
            Image.fromarray(pixels).save(folder / "data" / name / f"{index}.png")
            taken = (pixels / 255.0).astype(np.float32).reshape(1, 1, 8, 8)
            scores.append(session.run(None, {"picture": taken})[0][0])
            labels.append(number)
    return Classified(folder, model, folder / "data", np.array(labels), np.array(scores))


def test_figures_are_those_of_the_oracle(classified: Classified) -> None:
    """The figures follow from onnxruntime's outputs for the same pixels."""
    report = classified.ws.evaluate(
        classified.model, classified.data, "classification", board="local", model=classified.model
    )

    ranks, labels = classified.ranks(), classified.labels
    top1 = float((ranks[:, 0] == labels).mean())
    assert 0.3 < top1 < 1.0, "the data must be neither hopeless nor easy"
    assert report.samples == 42
    assert report.value("top1") == pytest.approx(top1)
    assert report.value("top5") == pytest.approx(
        float((ranks[:, :5] == labels[:, None]).any(1).mean())
    )
    assert report.value("agreement") == 1.0
    beside = {metric.name: metric.model for metric in report.metrics}
    assert beside["top1"] == pytest.approx(top1)
    assert beside["agreement"] is None
    assert report.model is not None and "onnxruntime" in report.model
    assert report.to_dict()["metrics"][0]["name"] == "top1"
    assert report.passed


def test_another_model_agrees_less(classified: Classified, tmp_path: Path) -> None:
    """Agreement is with the model that is named, not with the bundle's own."""
    other = write_classifier(
        tmp_path / "other.onnx", RANDOM.normal(0, 1, (64, 7)).astype(np.float32)
    )
    report = classified.ws.evaluate(
        classified.model, classified.data, "classification", board="local", model=other
    )

    assert report.value("agreement") < 1.0
    assert report.metrics[0].model != report.metrics[0].value


def test_the_float_model_runs_beside_its_int8_model(classified: Classified, tmp_path: Path) -> None:
    """The int8 program takes numbers that the float model does not."""
    for place, picture in enumerate(sorted(classified.data.rglob("*.png"))):
        np.save(tmp_path / f"{place}.npy", pixels_of(picture))
    out = tmp_path / "int8.onnx"
    ws = edgekit.Workspace(tmp_path)
    ws.quantize(classified.model, [*tmp_path.glob("*.npy")], out, accept_noise=True)
    (tmp_path / "int8.samples.npz").unlink()  # They are floats, and the program takes integers.
    bundle = ws.build(out, board="local", ends="int8")
    quantization = bundle.manifest.inputs[0].spec.quantization
    assert quantization is not None
    for name in NAMES:
        (tmp_path / "data" / name).mkdir(parents=True)
        for picture in (classified.data / name).iterdir():
            steps = np.rint(pixels_of(picture) / quantization.scales[0])
            steps = np.clip(steps + quantization.zero_points[0], -128, 127).astype(np.int8)
            np.save(tmp_path / "data" / name / picture.with_suffix(".npy").name, steps)
    report = ws.evaluate(bundle, tmp_path / "data", "classification", model=classified.model)

    top1 = float((classified.ranks()[:, 0] == classified.labels).mean())
    assert report.metrics[0].model == pytest.approx(top1, abs=0.05)
    assert 0.9 < report.value("agreement") <= 1.0


def test_an_interrupted_evaluation_goes_on(classified: Classified) -> None:
    bundle = classified.ws.build(classified.model, board="local")
    whole = classified.ws.evaluate(bundle, classified.data, "classification")

    def interrupt(event: Event) -> None:
        if _sample_of(event) == 10:
            raise KeyboardInterrupt

    interrupted = edgekit.Workspace(classified.folder, events=interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupted.evaluate(bundle, classified.data, "classification")
    changed = classified.data / "ant" / "0.png"
    changed.write_bytes(changed.read_bytes())  # What was written since is run again.
    resumed = classified.ws.evaluate(bundle, classified.data, "classification")
    after = classified.ws.evaluate(bundle, classified.data, "classification")

    assert resumed.resumed == 9
    assert resumed.metrics == whole.metrics
    assert (whole.resumed, after.resumed) == (0, 0)


def test_again_forgets_what_was_left(classified: Classified) -> None:
    bundle = classified.ws.build(classified.model, board="local")

    def interrupt(event: Event) -> None:
        if _sample_of(event) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edgekit.Workspace(classified.folder, events=interrupt).evaluate(
            bundle, classified.data, "classification"
        )
    report = classified.ws.evaluate(bundle, classified.data, "classification", again=True)

    assert report.resumed == 0


def test_a_missed_limit_has_an_exit_code_of_its_own(classified: Classified) -> None:
    words = ("evaluate", classified.model, "--board", "local", "--data", classified.data)
    words = (*words, "--task", "classification")
    kept = classified.edgekit(*words, "--at-least", "top1=0.1")
    junit = classified.folder / "ci.xml"
    words = (*words, "--junit", junit)
    missed = classified.edgekit(*words, "--at-least", "top1=0.999", "--json")

    assert kept.code == 0, kept.err
    assert "kept" in kept.out and "right among five" in kept.out
    assert missed.code == 17, missed.err
    assert json.loads(missed.out)["limits"] == [{"metric": "top1", "side": "least", "bound": 0.999}]
    assert "misses top1 of at least 0.999" in missed.err
    verdicts = {name: verdict for (_, name), verdict in outcomes(junit).items()}
    assert verdicts == {"top1": "failure", "top5": "passed", "f1": "passed"}
    assert ["allowed is at least 99.9" in text for text in told(junit)] == [True]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("top1=abc", "'abc' is no number"),
        ("top1=nan", "'nan' is no number"),
        ("top1", "'nothing' is no number"),
        ("=0.5", "names no figure"),
    ],
)
def test_a_limit_that_is_none_is_said_so(classified: Classified, limit: str, said: str) -> None:
    words = ("evaluate", classified.model, "--data", classified.data, "--task", "classification")
    ran = classified.edgekit(*words, "--at-least", limit)
    assert ran.code == 2
    assert said in ran.err
    assert "such as --at-least top1=0.7" in ran.err


def test_accuracy_is_kept_and_stands_beside_the_time(classified: Classified) -> None:
    """The device that measured the accuracy need not be the one that measured the time."""
    ws = edgekit.Workspace(classified.folder, store=f"sqlite:///{classified.folder}/kept.db")
    bundle = ws.build(classified.model, board="local")
    timed = ws.bench(bundle, runs=1, warmup=0)
    report = ws.evaluate(bundle, classified.data, "classification")

    listing = ws.results()
    (run,) = listing.runs
    kept = listing.accuracy_of(run)
    assert run.id == timed.kept_as
    assert kept is not None and kept.id == report.kept_as
    assert kept.samples == 42
    assert [(one.name, one.value) for one in kept.figures] == [
        (metric.name, metric.value) for metric in report.metrics
    ]
    assert ws.accuracy(model="animals").evaluations == (kept,)
    shown = classified.edgekit("results", "list", "--store", ws.data.store, "--csv", "list.csv")
    assert shown.code == 0, shown.err
    (row,) = csv.DictReader((classified.folder / "list.csv").read_text().splitlines())
    assert row["accuracy"] == f"top1 {percent(report.value('top1'))}"
    shown = classified.edgekit("results", "accuracy", "--store", ws.data.store)
    assert row["accuracy"] in shown.out


def test_a_matrix_has_the_accuracy_of_each_cell(classified: Classified) -> None:
    words = ("bench", classified.model, "--boards", "local", "--offload", "none", "--runs", "1")
    words = (*words, "-o", "matrix", "--data", classified.data, "--task", "classification")
    top1 = float((classified.ranks()[:, 0] == classified.labels).mean())
    ran = classified.edgekit(*words, "--json")
    missed = classified.edgekit(*words, "--at-least", "top1=0.999", "--junit", "m.xml")
    half = classified.edgekit(*words[:6], "--data", classified.data)

    assert ran.code == 0, ran.err
    (cell,) = json.loads(ran.out)["cells"]
    first = cell["accuracy"][0]
    assert (first["name"], first["value"]) == ("top1", pytest.approx(top1))
    assert missed.code == 10
    assert "misses top1 of at least 0.999" in (classified.folder / "matrix/matrix.md").read_text()
    assert outcomes(classified.folder / "m.xml") == {("animals.local", "none"): "failure"}
    assert half.code == 2
    assert "a data set and a task" in half.err


def test_limits_in_python(classified: Classified) -> None:
    report = classified.ws.evaluate(
        classified.model, classified.data, "classification", board="local", at_least={"f1": 0.999}
    )

    assert not report.passed
    with pytest.raises(AccuracyError, match=r"f1 of at least 0\.999"):
        raise_if_missed(report)
    with pytest.raises(UsageError, match="no figure 'top2'"):
        classified.ws.evaluate(
            report.bundle, classified.data, "classification", at_least={"top2": 0.1}
        )


def test_folders_may_have_numbers_or_a_list_of_labels(
    classified: Classified, tmp_path: Path
) -> None:
    bundle = classified.ws.build(classified.model, board="local")
    data = tmp_path / "data"
    (data / "6").mkdir(parents=True)
    (data / "6" / "gnu.png").write_bytes((classified.data / "gnu" / "0.png").read_bytes())
    by_number = classified.ws.evaluate(bundle, data, "classification")
    (data / "6").rename(data / "gnu")

    with pytest.raises(InputError, match="1 folder, and the model 7 classes"):
        classified.ws.evaluate(bundle, data, "classification")
    (data / "labels.txt").write_text("\n".join(NAMES))
    by_label = classified.ws.evaluate(bundle, data, "classification")

    assert by_label.metrics == by_number.metrics
    assert by_label.value("top1") == float(classified.ranks()[36, 0] == 6)


def test_a_damaged_picture_is_named_and_the_rest_is_kept(
    classified: Classified, tmp_path: Path
) -> None:
    bundle = classified.ws.build(classified.model, board="local")
    for number, name in enumerate(NAMES):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.png").write_bytes(
            (classified.data / name / "0.png").read_bytes()
        )
    damaged = tmp_path / "6" / "a.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:40])
    with pytest.raises(InputError, match=r"6/a\.png"):
        classified.ws.evaluate(bundle, tmp_path, "classification")
    damaged.write_bytes(whole)
    report = classified.ws.evaluate(bundle, tmp_path, "classification")

    assert report.samples == 7
    assert report.resumed > 0
