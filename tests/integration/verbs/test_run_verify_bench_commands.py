"""run, verify and bench through the command line, on a bundle that was built for real."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.building import Ran, run_edgekit, write_model
from support.junit import outcomes, told
from support.local_bundles import built_bundle, copied, resealed, with_patched_kernels

from edgekit.bundle.folder import Bundle, open_bundle


@dataclass(frozen=True)
class Built:
    folder: Path
    model: Path
    bundle: Bundle

    def edgekit(self, *arguments: object) -> Ran:
        return run_edgekit(*map(str, arguments), folder=self.folder)

    def oracle(self, image: np.ndarray) -> np.ndarray:
        session = onnxruntime.InferenceSession(str(self.model))
        (features,) = session.run(None, {"image": image})
        return np.asarray(features)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("commands")
    model, bundle = built_bundle(folder)
    return Built(folder, model, bundle)


@pytest.fixture
def images(built: Built, tmp_path: Path) -> list[Path]:
    random = np.random.default_rng(3)
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path in paths:
        np.save(path, random.standard_normal((1, 3, 8, 8)).astype(np.float32))
    return paths


def wrong_bundle(built: Built, folder: Path, change: float) -> Bundle:
    """A bundle whose expected outputs are not what the model computes."""
    copied(built.bundle, folder)
    path = folder / built.bundle.manifest.vectors[0].outputs[0].file
    array = np.load(path)
    array[0, 1, 2, 3] += change
    np.save(path, array)
    return resealed(built.bundle, folder)


def test_run_says_when_it_takes_the_reference_input(built: Built) -> None:
    done = built.edgekit("run", built.bundle.path)

    assert done.code == 0, done.err
    assert "this is the bundle's reference input" in done.out
    assert "1x4x8x8" in done.out


def test_run_writes_what_the_oracle_computes(
    built: Built, images: list[Path], tmp_path: Path
) -> None:
    to_folder = built.edgekit(
        "run", built.bundle.path, "--input", f"image={images[0]}", "-o", tmp_path / "out"
    )
    to_file = built.edgekit("run", built.bundle.path, "-i", images[0], "-o", tmp_path / "out.npz")

    expected = built.oracle(np.load(images[0]))
    assert (to_folder.code, to_file.code) == (0, 0), to_folder.err + to_file.err
    np.testing.assert_allclose(np.load(tmp_path / "out/features.npy"), expected, atol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["features"], expected, atol=1e-5)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"features.npy"}


def test_run_takes_several_samples_and_reports_each(
    built: Built, images: list[Path], tmp_path: Path
) -> None:
    done = built.edgekit(
        *("run", built.bundle.path, "-i", images[0].parent / "*.npy", "-o", tmp_path / "out"),
        "--json",
    )

    report = json.loads(done.out)
    expected = [built.oracle(np.load(path)) for path in images]
    assert [sample["name"] for sample in report["samples"]] == ["0.npy", "1.npy", "2.npy"]
    for sample, array in zip(report["samples"], expected, strict=True):
        assert sample["outputs"][0]["maximum"] == pytest.approx(float(array.max()), rel=1e-4)
        np.testing.assert_allclose(np.load(sample["files"][0]), array, atol=1e-5)


def test_run_does_not_replace_a_file_with_a_folder_or_many_with_one(
    built: Built, images: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    over = built.edgekit("run", built.bundle.path, "-o", tmp_path / "taken")
    many = built.edgekit("run", built.bundle.path, *inputs(images), "-o", tmp_path / "x.npz")

    assert over.code == 2 and "is a file" in over.err
    assert many.code == 2 and "do not fit into one file" in many.err
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("shape", np.zeros((3, 8, 8), np.float32), "takes [1, 3, 8, 8]"),
        ("dtype", np.zeros((1, 3, 8, 8)), "holds float64"),
        ("nan", np.full((1, 3, 8, 8), np.nan, np.float32), "NaN or infinity"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    built: Built, tmp_path: Path, name: str, array: np.ndarray, says: str
) -> None:
    np.save(tmp_path / f"{name}.npy", array)

    done = built.edgekit("run", built.bundle.path, "--input", tmp_path / f"{name}.npy")

    assert done.code == 3
    assert says in done.err
    assert "hint:" in done.err


def test_nan_goes_in_when_it_is_meant(built: Built, tmp_path: Path) -> None:
    np.save(tmp_path / "nan.npy", np.full((1, 3, 8, 8), np.nan, np.float32))

    done = built.edgekit(
        "run", built.bundle.path, "-i", tmp_path / "nan.npy", "--allow-nonfinite", "--json"
    )

    assert done.code == 0, done.err
    (output,) = json.loads(done.out)["samples"][0]["outputs"]
    assert output["nonfinite"] == math.prod(output["shape"])  # onnxruntime's are all NaN too


def test_a_crash_is_an_error_of_the_device(built: Built, tmp_path: Path) -> None:
    bundle = with_patched_kernels(built.bundle, tmp_path / "trap")

    done = built.edgekit("run", bundle.path)
    as_json = built.edgekit("verify", bundle.path, "--json")

    assert done.code == as_json.code == 8
    assert "crashed on local while running: SIGILL" in done.err
    assert json.loads(as_json.out)["error"]["type"] == "DeviceError"


def test_verify_passes_with_the_vectors_in_the_bundle(built: Built) -> None:
    done = built.edgekit("verify", built.bundle.path)

    assert done.code == 0, done.err
    assert "verified: local against onnxruntime" in done.out
    assert "4 reference vectors (random, zeros, largest, nan)" in done.out
    assert "0/1024" in done.out


def test_verify_fails_with_the_worst_element_and_its_own_exit_code(
    built: Built, tmp_path: Path
) -> None:
    bundle = wrong_bundle(built, tmp_path / "wrong", 0.5)

    done = built.edgekit("verify", bundle.path)
    as_json = built.edgekit("verify", bundle.path, "--json")

    assert done.code == as_json.code == 7
    assert "FAIL" in done.out and "[0, 1, 2, 3]" in done.out
    assert "is not what onnxruntime" in done.err
    report = json.loads(as_json.out)
    assert report["passed"] is False
    assert [sample["name"] for sample in report["samples"] if not sample["passed"]] == ["random"]
    assert [len(sample["tensors"]) for sample in report["samples"]] == [1, 1, 1, 1]
    assert report["outputs"][0]["out_of_tolerance"] == 1
    assert report["outputs"][0]["worst"]["index"] == [0, 1, 2, 3]


def test_verify_leaves_junit_for_ci(built: Built, tmp_path: Path) -> None:
    right, wrong, gone = (tmp_path / f"{name}.xml" for name in ("right", "wrong", "gone"))
    damaged = wrong_bundle(built, tmp_path / "net", 0.5)

    assert built.edgekit("verify", built.bundle.path, "--junit", right).code == 0
    assert built.edgekit("verify", damaged.path, "--junit", wrong).code == 7
    damaged.library.unlink()
    assert built.edgekit("verify", damaged.path, "--junit", gone).code == 3

    vectors = ("random", "zeros", "largest", "nan")
    assert outcomes(right) == {("bundle.local", name): "passed" for name in vectors}
    assert outcomes(wrong) == {
        ("net.local", name): "failure" if name == "random" else "passed" for name in vectors
    }
    (failure,) = told(wrong)
    assert "'features': not what onnxruntime" in failure
    assert "worst at [0, 1, 2, 3] of the reference vector 'random': expected" in failure
    assert outcomes(gone) == {("net", "verify"): "error"}
    assert "hint: build it again" in told(gone)[0]


def test_a_user_may_widen_the_tolerance(built: Built, tmp_path: Path) -> None:
    bundle = wrong_bundle(built, tmp_path / "wrong", 0.5)

    assert built.edgekit("verify", bundle.path, "--atol", "0.51").code == 0
    assert built.edgekit("verify", bundle.path, "--atol", "0.1").code == 7


def test_verify_compares_a_users_samples_with_the_oracle(built: Built, images: list[Path]) -> None:
    done = built.edgekit(
        "verify", built.bundle.path, *inputs(images), "--model", built.model, "--json"
    )

    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert [len(sample["tensors"]) for sample in report["samples"]] == [1, 1, 1]
    assert report["reference"] is False
    assert report["outputs"][0]["elements"] == 3 * 256


def test_verify_takes_the_model_of_the_project(
    built: Built, images: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "edgekit.toml").write_text(f'schema = 1\nmodel = "{built.model}"\n')

    done = run_edgekit("verify", str(built.bundle.path), *inputs(images), folder=tmp_path)

    assert done.code == 0, done.err
    assert "3 samples" in done.out


def test_verify_wants_the_very_model_the_bundle_was_built_from(
    built: Built, images: list[Path], tmp_path: Path
) -> None:
    other = write_model(tmp_path / "model.onnx", scale=0.3)

    without = built.edgekit("verify", built.bundle.path, "-i", images[0])
    wrong = built.edgekit("verify", built.bundle.path, "-i", images[0], "--model", other)
    useless = built.edgekit("verify", built.bundle.path, "--model", built.model)

    assert without.code == wrong.code == useless.code == 2
    assert "add --model" in without.err
    assert "is not the model that the bundle" in wrong.err
    assert "--model does nothing without --input" in useless.err


def test_bench_reports_every_figure_and_sample(built: Built) -> None:
    done = built.edgekit(
        "bench", built.bundle.path, "--runs", "12", "--warmup", "1", "--threads", "1", "--json"
    )

    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert f'"samples": {json.dumps(report["samples"])}' in done.out, "all in one line"
    assert report["runs"] == len(report["samples"]) == 12
    assert (report["warmup"], report["threads"]) == (1, 1)
    assert report["median"] == pytest.approx(np.median(report["samples"]))
    assert 0 < report["minimum"] <= report["median"] <= report["p90"] <= report["p99"]
    assert report["frequency_mhz"] is None or report["frequency_mhz"] > 0


def test_bench_has_a_table_for_people(built: Built) -> None:
    done = built.edgekit("bench", built.bundle.path, "--runs", "3")

    assert done.code == 0, done.err
    for word in ("median", "p99", "throughput", "threads", "memory of the model"):
        assert word in done.out


def test_a_program_starts_as_many_threads_as_it_is_asked_for(built: Built) -> None:
    done = built.edgekit(
        "bench", built.bundle.path, "--runs", "1", "--threads", "100", "--seconds", "0", "--json"
    )

    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["threads"] == 100
    assert not any("asked for" in note for note in report["notes"])


def test_bench_repeats_one_sample_only(built: Built, images: list[Path]) -> None:
    done = built.edgekit("bench", built.bundle.path, *inputs(images))

    assert done.code == 2
    assert "a benchmark repeats one" in done.err


def test_a_zipped_bundle_runs_too(built: Built, tmp_path: Path) -> None:
    from edgekit.bundle.archive import write_archive

    archive = tmp_path / "bundle.zip"
    write_archive(built.bundle.path, built.bundle.manifest, archive)

    assert open_bundle(archive).manifest == built.bundle.manifest
    assert built.edgekit("verify", archive).code == 0


def inputs(images: list[Path]) -> list[str]:
    return [argument for path in images for argument in ("--input", f"image={path}")]
