"""An application of a model whose sizes vary: every wrapper takes and gives true sizes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.exports import built, checked
from support.needs import needs
from support.sizes import LARGEST, SHAPES, write_sized

import edgekit
from edgekit.verbs.export.application import export


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    model = write_sized(folder / "sized.onnx")
    bundle = edgekit.Workspace(folder).build(model, "bundle", board="local", shapes=SHAPES)
    export(bundle, folder / "app")
    return folder / "app"


def inputs(size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(size)
    return {
        "ids": random.standard_normal((1, size)).astype(np.float32),
        "mask": random.standard_normal((1, size)).astype(np.float32),
        "scale": random.standard_normal((3, 1, 1)).astype(np.float32),
    }


def oracle(app: Path, given: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(app.with_name("sized.onnx")))
    return np.asarray(session.run(None, given)[0])


PYTHON = """
import sys
import numpy as np
from sized_model import Model

model = Model(threads=1)
print(*model.inputs, *model.outputs, sep="; ")
given = np.load(sys.argv[1])
for name in given.files:
    size = int(name.split("-")[-1])
    if name.startswith("ids"):
        ids, mask, scale = (given[f"{one}-{size}"] for one in ("ids", "mask", "scale"))
        found = model.run(ids, mask, scale)["out"]
        assert found.shape == (3, 1, size), found.shape
        np.testing.assert_allclose(found, given[f"out-{size}"], rtol=1e-5, atol=1e-6)
for wrong in (1, 25):
    try:
        model.run(np.ones((1, wrong), "float32"), mask, scale)
    except ValueError as error:
        print(error)
try:
    model.run(ids[:, 1:], mask, scale)
except Exception as error:
    print(type(error).__name__, error.code, error)
"""


def test_the_python_package_runs_every_size(app: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install")
    options = ("--quiet", "--no-index", "--no-deps", "--target", tmp_path / "site")
    checked((*pip, *options, "./python"), app)
    arrays = {}
    for size in range(2, LARGEST + 1):
        given = inputs(size)
        arrays |= {f"{name}-{size}": array for name, array in given.items()}
        arrays[f"out-{size}"] = oracle(app, given)
    np.savez(tmp_path / "given.npz", **arrays)

    own = os.pathsep.join((str(tmp_path / "site"), str(Path(np.__file__).parents[1])))
    said = subprocess.run(
        [sys.executable, "-S", "-c", PYTHON, str(tmp_path / "given.npz")],
        env={**os.environ, "PYTHONPATH": own},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert said == [
        "float32[1, 2..24]; float32[1, 2..24]; float32[3, 1, 1]; float32[3, 1, 2..24]",
        "the input ids is float32[1, 2..24], not float32[1, 1]",
        "the input ids is float32[1, 2..24], not float32[1, 25]",
        "ModelError 5 dimension 1 of 'mask' has the size 24, and takes 23",
    ]


def test_the_application_runs_the_samples_of_every_size(app: Path, tmp_path: Path) -> None:
    built(app)
    program = app / "build" / "bin" / "sized-model"
    sizes = {}
    for sample in (app / "sample", *sorted((app / "sample").glob("size-*"))):
        files = [sample / f"input-{place}.npy" for place in range(3)]
        checked((program, "--once", *files, "--out", tmp_path / sample.name), app)
        found, expected = (
            np.load(path)
            for path in (tmp_path / sample.name / "output-0.npy", sample / "expected-0.npy")
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        sizes[sample.name] = found.shape[2]
    files = [app / "sample" / "size-2" / f"input-{place}.npy" for place in range(3)]
    other = app / "sample" / "size-7" / "input-1.npy"
    wrong = subprocess.run(
        (program, "--once", files[0], other, files[2]), capture_output=True, text=True
    )

    assert sizes == {"sample": 24, "size-2": 2, "size-7": 7, "size-9": 9, "size-18": 18}
    assert wrong.returncode == 1
    assert "dimension 1 of 'mask' has the size 7, and takes 2" in wrong.stderr
    assert "float32[1, 2..24]" in checked((program, "--describe"), app)


RUST = """
mod model;

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(name).unwrap()
}

fn main() {
    let mut program = model::Model::new(1).unwrap();
    let files = [bytes("ids.raw"), bytes("mask.raw"), bytes("scale.raw")];
    let shapes: [&[i64]; 3] = [&[1, 7], &[1, 7], &[3, 1, 1]];
    let given: Vec<_> = files.iter().zip(shapes.iter()).map(|(a, b)| (&a[..], *b)).collect();
    let made = program.run_sizes(&given).unwrap();
    std::fs::write("out.raw", &made[0].0).unwrap();
    println!("{:?} {:?}", made[0].1, model::inputs()[0].smallest);
    println!("{}", program.run_sizes(&given[..2]).unwrap_err());
    println!("{}", program.run(&[&files[0], &files[1], &files[2]]).unwrap_err());
    println!("{}", model::Model::arena_bytes() > 0 && program.threads() == 1);
    drop(model::Model::with_arena(1, Vec::new()).unwrap());
}
"""
GO = """package main

import (
	"fmt"
	"os"
)

func main() {
	model, _ := NewModel(1)
	given := []Sized{}
	for i, name := range []string{"ids.raw", "mask.raw", "scale.raw"} {
		bytes, _ := os.ReadFile(name)
		given = append(given, Sized{bytes, [][]int64{{1, 7}, {1, 7}, {3, 1, 1}}[i]})
	}
	made, err := model.RunSizes(given...)
	if err != nil {
		panic(err)
	}
	os.WriteFile("out.raw", made[0].Bytes, 0o644)
	fmt.Println(made[0].Shape, Inputs()[0].Smallest)
	_, err = model.RunSizes(given[:2]...)
	fmt.Println(err)
}
"""


def raw(folder: Path) -> dict[str, np.ndarray]:
    given = inputs(7)
    for name, array in given.items():
        array.tofile(folder / f"{name}.raw")
    return given


@needs("rust")
def test_rust_takes_and_gives_bytes_with_shapes(app: Path, tmp_path: Path) -> None:
    shutil.copytree(app, tmp_path / "app")
    (tmp_path / "app" / "rust" / "src" / "main.rs").write_text(RUST)
    # rustup's compilers lie in the user's home, which a session of tests replaces.
    rustup = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    own = {"RUSTUP_HOME": str(rustup), **os.environ} if rustup.is_dir() else None
    command = ("cargo", "build", "--offline", "--quiet")
    subprocess.run(command, cwd=tmp_path / "app" / "rust", env=own, check=True)
    given = raw(tmp_path)

    said = checked((tmp_path / "app" / "rust" / "target" / "debug" / "sized-model",), tmp_path)

    assert said.splitlines() == [
        "[3, 1, 7] [1, 2]",
        "the input ids has no such bytes and shape",
        "the input ids has 96 bytes, not 28",
        "true",
    ]
    found = np.fromfile(tmp_path / "out.raw", np.float32).reshape(3, 1, 7)
    np.testing.assert_allclose(found, oracle(app, given), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@needs("go")
def test_go_takes_and_gives_bytes_with_shapes(app: Path, tmp_path: Path) -> None:
    shutil.copytree(app, tmp_path / "app")
    (tmp_path / "app" / "go" / "main.go").write_text(GO)
    own = {**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(tmp_path / "cache")}
    command = ["go", "build", "-o", tmp_path / "program", "."]
    subprocess.run(command, cwd=tmp_path / "app" / "go", env=own, check=True)
    given = raw(tmp_path)

    said = checked((tmp_path / "program",), tmp_path)

    assert said.splitlines() == ["[3 1 7] [1 2]", "the model takes 3 inputs, not 2"]
    found = np.fromfile(tmp_path / "out.raw", np.float32).reshape(3, 1, 7)
    np.testing.assert_allclose(found, oracle(app, given), rtol=1e-5, atol=1e-6)
