"""A bundle of a model whose sizes vary, through the command line and Python, on this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.building import Ran, run_edgekit
from support.sizes import LARGEST, SHAPES, WORDS, write_sized

import edgekit
from edgekit.base.errors import InputError, UsageError
from edgekit.bundle.folder import Bundle
from edgekit.store.bench_runs import RunFilter
from edgekit.store.results import list_results


@dataclass(frozen=True)
class Built:
    folder: Path
    model: Path
    bundle: Bundle

    def edgekit(self, *arguments: object) -> Ran:
        return run_edgekit(*map(str, arguments), folder=self.folder)

    def inputs(self, size: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(size)
        return {
            "ids": random.standard_normal((1, size)).astype(np.float32),
            "mask": random.standard_normal((1, size)).astype(np.float32),
            "scale": random.standard_normal((3, 1, 1)).astype(np.float32),
        }

    def oracle(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        session = onnxruntime.InferenceSession(str(self.model))
        return np.asarray(session.run(None, inputs)[0])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("sizes")
    model = write_sized(folder / "model.onnx")
    ws = edgekit.Workspace(folder)
    bundle = ws.build(model, "bundle", board="local", shapes=SHAPES)
    return Built(folder, model, bundle)


def test_a_range_given_for_one_input_counts_for_what_has_the_same_dimension(built: Built) -> None:
    specs = [entry.spec for entry in built.bundle.manifest.inputs]
    (result,) = (entry.spec for entry in built.bundle.manifest.outputs)

    assert [spec.shape_in_words() for spec in specs] == ["[1, 2..24]", "[1, 2..24]", "[3, 1, 1]"]
    assert result.shape_in_words() == "[3, 1, 2..24]"


def test_one_bundle_runs_every_size(built: Built) -> None:
    ws = edgekit.Workspace(built.folder)
    with ws.opened(built.bundle, device="local") as session:
        for size in range(2, LARGEST + 1):
            inputs = built.inputs(size)
            found = session.run(inputs)["out"]
            assert found.shape == (3, 1, size)
            np.testing.assert_allclose(found, built.oracle(inputs), rtol=1e-5, atol=1e-6)


def test_samples_of_several_sizes_run_one_after_another(built: Built) -> None:
    ws = edgekit.Workspace(built.folder)
    samples = [built.inputs(size) for size in (24, 2, 9)]
    with ws.opened(built.bundle, device="local") as session:
        shapes = [found["out"].shape for found in session.run_all(samples)]

    assert shapes == [(3, 1, 24), (3, 1, 2), (3, 1, 9)]


def test_run_writes_outputs_of_the_size_of_the_inputs(built: Built, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **built.inputs(7))

    done = built.edgekit(
        *("run", built.bundle.path, "-i", tmp_path / "x.npz", "-o", tmp_path / "out.npz")
    )

    assert done.code == 0, done.err
    assert "3x1x7" in done.out
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npz")["out"], built.oracle(built.inputs(7)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("size", "said"), [(1, "[1, 2..24]"), (25, "[1, 2..24]")])
def test_a_size_outside_of_the_range_is_one_sentence(
    built: Built, size: int, said: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", **built.inputs(size))

    done = built.edgekit("run", built.bundle.path, "-i", tmp_path / "x.npz")
    with pytest.raises(InputError, match="takes") as caught:
        edgekit.Workspace(built.folder).run(built.bundle, built.inputs(size), device="local")

    assert done.code != 0
    assert done.err.count("error:") == 1 and said in done.err and "--shape" in done.err
    assert said in str(caught.value) and "that range" in str(caught.value.hint)


def test_inputs_that_disagree_about_their_size_are_refused(built: Built, tmp_path: Path) -> None:
    wrong = {**built.inputs(7), "mask": built.inputs(8)["mask"]}
    np.savez(tmp_path / "x.npz", **wrong)

    done = built.edgekit("run", built.bundle.path, "-i", tmp_path / "x.npz")
    with pytest.raises(InputError, match="'mask' has the size 8"):
        edgekit.Workspace(built.folder).run(built.bundle, wrong, device="local")

    assert done.code != 0 and "'mask' has the size 8" in done.err


def test_verify_takes_the_smallest_the_largest_and_three_between(built: Built) -> None:
    report = edgekit.Workspace(built.folder).verify(built.bundle, device="local")

    assert report.passed
    assert {sample.name for sample in report.samples} >= {
        *("random", "size-2", "size-18", "size-9", "size-7")
    }
    arrays = {vector.name: vector.inputs["ids"].shape for vector in built.bundle.vectors()}
    assert arrays["random"] == (1, 24)
    assert arrays["size-2"] == (1, 2)


def test_verify_takes_samples_of_any_size(built: Built, tmp_path: Path) -> None:
    for size in (3, 11):
        np.savez(tmp_path / f"{size}.npz", **built.inputs(size))

    done = built.edgekit(
        *("verify", built.bundle.path, "-i", tmp_path, "--model", built.model),
        *(*WORDS, "--json"),
    )
    other = built.edgekit(
        *("verify", built.bundle.path, "-i", tmp_path, "--model", built.model),
        *("--shape", "ids=1x(2..25)", "--shape", "scale=3,1,1"),
    )

    assert done.code == 0, done.err
    assert json.loads(done.out)["outputs"][0]["elements"] == 3 * (3 + 11)
    assert other.code != 0 and "is not the model" in other.err


def test_bench_measures_at_the_sizes_that_are_named(built: Built) -> None:
    store = f"sqlite:///{built.folder}/store.db"
    ws = edgekit.Workspace(built.folder, store=store)
    at = ws.bench(built.bundle, device="local", at={"ids": "1x8"}, runs=3)
    whole = ws.bench(built.bundle, device="local", runs=3)

    assert at.sizes == "ids=1x8, mask=1x8" and at.sizes in str(at)
    assert whole.sizes == "ids=1x24, mask=1x24"
    kept = {run.id: run.sizes for run in list_results(RunFilter(), store).runs}
    assert kept == {at.kept_as: at.sizes, whole.kept_as: ""}


def test_bench_measures_several_sizes_in_one_call(built: Built) -> None:
    done = built.edgekit(
        *("bench", built.bundle.path, "--at", "ids=1x8", "--at", "ids=1x16", "--runs", 3),
        "--json",
    )
    shown = built.edgekit(
        "bench", built.bundle.path, "--at", "ids=1x8", "--at", "ids=1x16", "--runs", 3
    )

    assert done.code == 0, done.err
    reports = json.loads(done.out)["sizes"]
    assert [one["sizes"] for one in reports] == ["ids=1x8, mask=1x8", "ids=1x16, mask=1x16"]
    assert all(one["runs"] == 3 for one in reports)
    assert "ids=1x16, mask=1x16" in shown.out


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ({"ids": "1x25"}, r"takes \[1, 2\.\.24\]"),
        ({"ids": "1x(2..8)"}, r"takes \[1, 2\.\.24\]"),
        ({"idz": "1x8"}, "no input named 'idz'"),
        ({"ids": "1x8", "mask": "1x9"}, "9 and 8"),
        ({"ids": "none"}, "whole numbers"),
    ],
)
def test_a_size_that_the_model_does_not_take_is_not_measured(
    built: Built, at: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        edgekit.Workspace(built.folder).bench(built.bundle, device="local", at=at)

    assert caught.value.hint


def test_inspect_and_the_reports_show_the_range(built: Built) -> None:
    bundle = built.edgekit("inspect", built.bundle.path)
    model = built.edgekit("inspect", built.model, *WORDS, "--json")

    assert "[1, 2..24]" in bundle.out and "[3, 1, 2..24]" in bundle.out
    assert [one["shape"] for one in json.loads(model.out)["inputs"]] == [
        [1, "2..24"],
        [1, "2..24"],
        [3, 1, 1],
    ]


@pytest.mark.parametrize(
    ("board", "said"),
    [
        ("nrf52840-dk", "in C, where every size is fixed"),
        ("jetson-orin-jp7", "kernels on its GPU"),
    ],
)
def test_a_board_with_fixed_sizes_takes_no_range(built: Built, board: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        edgekit.Workspace(built.folder).request(built.model, board=board, shapes=SHAPES)

    assert "ids=1x24" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("ids=1x(24..2)", "smallest size is above"),
        ("scale=(1..3)x1x1", "which the file fixes at 3"),
        ("ids=1x(2..24) mask=1x24 scale=3,1,1", "'seq' is given as (seq:2..24) and as 24"),
        ("ids=1x(2..24) mask=1x(2..9) scale=3,1,1", "'seq' is given as"),
    ],
)
def test_a_range_that_does_not_fit_the_file_is_refused(built: Built, shape: str, said: str) -> None:
    shapes = [word for one in shape.split() for word in ("--shape", one)]

    done = built.edgekit("build", built.model, "--board", "local", *shapes)

    assert done.code != 0 and said in done.err and "hint:" in done.err
    assert "Traceback" not in done.err


def test_a_tflite_model_has_fixed_sizes(built: Built, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(b"\0" * 4 + b"TFL3" + b"\0" * 64)

    done = built.edgekit("build", tmp_path / "model.tflite", "--shape", "x=1x(2..24)")

    assert done.code != 0 and "the sizes of a TFLite model are fixed" in done.err


def test_the_project_file_gives_ranges(built: Built, tmp_path: Path) -> None:
    (tmp_path / "edgekit.toml").write_text(
        f'schema = 1\nmodel = "{built.model}"\nboard = "local"\n'
        f'[shapes]\nids = [1, "2..{LARGEST}"]\nscale = [3, 1, 1]\n'
    )
    ws = edgekit.Workspace(tmp_path)

    assert ws.request().source.sha256 == built.bundle.manifest.model.sha256
    (tmp_path / "edgekit.toml").write_text(
        f'schema = 1\nmodel = "{built.model}"\nboard = "local"\n[shapes]\n'
        'ids = "1x(2..9)"\nscale = [3, 1, 1]\n'
    )
    assert edgekit.Workspace(tmp_path).request().source.sha256 != built.bundle.manifest.model.sha256
