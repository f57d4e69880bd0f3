"""The wrappers of an export: Python, Rust and Go call the model and give what the oracle does."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.building import request_for, run_edgekit, write_embedding, write_model
from support.exports import checked
from support.needs import needs
from support.tflite_models import Graph, Op, T, constant, tflite_bytes

from edgekit.building.build import build
from edgekit.verbs.export.application import export


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wrappers")


@pytest.fixture(scope="module")
def app(place: Path) -> Path:
    """The export of a small model, by way of the command line."""
    build(request_for(write_model(place / "tiny.onnx")), place / "bundle", isolated=False)
    ran = run_edgekit("export", "bundle", "-o", "app", "--json", folder=place)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert set(report["wrappers"]) == {"C", "C++", "Python", "Rust", "Go"}
    for name, folder in (("Python", "python"), ("Rust", "rust"), ("Go", "go")):
        files = (path for path in (place / "app" / folder).rglob("*") if path.is_file())
        assert report["wrappers"][name] == sum(path.stat().st_size for path in files)
    return place / "app"


def installed(app: Path, folder: Path) -> Path:
    """The Python package, installed as its README says, into a folder, without an index."""
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install")
    options = ("--quiet", "--no-index", "--no-deps", "--target", folder)
    checked((*pip, *options, "./python"), app)
    return folder


def python(folder: Path, script: str, *arguments: Path) -> str:
    """What a script prints that has nothing but numpy and the package."""
    import numpy

    own = os.pathsep.join((str(folder), str(Path(numpy.__file__).parents[1])))
    return subprocess.run(
        [sys.executable, "-S", "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": own},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


PYTHON = """
import sys, threading
import numpy as np
from tiny_model import Model, ModelError

given, expected = np.load(sys.argv[1]), np.load(sys.argv[2])
model = Model(threads=1)
(image,), (features,) = model.inputs, model.outputs
print(model.name, image.name, image.dtype, image.shape, features.name, model.threads)
np.testing.assert_allclose(model.run(given)["features"], expected, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(model.run(image=given)["features"], expected, rtol=1e-4, atol=1e-5)
arena = np.empty(Model.arena_bytes(), np.uint8)
with Model(arena=arena) as other:
    np.testing.assert_array_equal(other.run(given)["features"], model.run(given)["features"])
for wrong in ((given[0],), (given.astype("float64"),), (given, given), ()):
    try:
        model.run(*wrong)
    except ValueError as error:
        print(error)
try:
    Model(arena=arena[: len(arena) // 2])
except ValueError as error:
    print(error)
results = []
def work():
    results.append(Model(threads=1).run(given)["features"])
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert len(results) == 4 and all((one == results[0]).all() for one in results)
assert "edgekit" not in sys.modules
"""


def test_the_python_package_gives_what_the_oracle_does(app: Path, tmp_path: Path) -> None:
    folder = installed(app, tmp_path / "site")
    shutil.move(app, app.with_name("moved"))  # the package holds the library
    try:
        sample = app.with_name("moved") / "sample"
        said = python(folder, PYTHON, sample / "input-0.npy", sample / "expected-0.npy")
    finally:
        shutil.move(app.with_name("moved"), app)
    lines = said.splitlines()
    assert lines[0] == "tiny image float32 (1, 3, 8, 8) features 1"
    assert lines[1] == "the input image is float32[1, 3, 8, 8], not float32[3, 8, 8]"
    assert lines[2] == "the input image is float32[1, 3, 8, 8], not float64[1, 3, 8, 8]"
    assert lines[3] == "tiny takes 1 inputs, not 2"
    assert lines[4] == "the input image is missing: float32[1, 3, 8, 8]"
    assert lines[5].startswith("an arena is ")


def test_an_error_of_the_model_has_its_code_and_words(place: Path, tmp_path: Path) -> None:
    model = write_embedding(tmp_path / "rows.onnx")
    bundle = build(request_for(model), tmp_path / "bundle", isolated=False).bundle
    export(bundle, tmp_path / "app")
    folder = installed(tmp_path / "app", tmp_path / "site")
    script = (
        "import numpy as np, rows_model\n"
        "try: rows_model.Model().run(np.array([0, 9, 1]))\n"
        "except rows_model.ModelError as error: print(error.code, error)"
    )
    said = python(folder, script)
    assert said.startswith("3 ")
    assert "'ids' holds the index 9, which is outside of -5 to 4" in said


def test_the_python_package_carries_state(tmp_path: Path) -> None:
    """A variable of the file that begins with 5, and to which each call adds its input."""
    handle = Op("VAR_HANDLE", (), ("h",), {"table": "VarHandleOptions", "sharedName": "v"})
    first = Graph(
        [T("h", (), "resource"), constant("begin", np.full((1, 2), 5.0))],
        [handle, Op("ASSIGN_VARIABLE", ("h", "begin"), (), {"table": "AssignVariableOptions"})],
        [],
        [],
    )
    tensors = [T("h", (), "resource"), *(T(name, (1, 2)) for name in ("x", "old", "new"))]
    operators = [
        Op("CALL_ONCE", (), (), {"table": "CallOnceOptions", "initSubgraphIndex": 1}),
        handle,
        Op("READ_VARIABLE", ("h",), ("old",), {"table": "ReadVariableOptions"}),
        Op("ADD", ("x", "old"), ("new",), {"table": "AddOptions"}),
        Op("ASSIGN_VARIABLE", ("h", "new"), (), {"table": "AssignVariableOptions"}),
    ]
    content = tflite_bytes(tensors, operators, ("x",), ("new",), [first])
    (tmp_path / "sum.tflite").write_bytes(content)
    request = request_for(tmp_path / "sum.tflite")
    export(build(request, tmp_path / "bundle", isolated=False).bundle, tmp_path / "app")
    folder = installed(tmp_path / "app", tmp_path / "site")
    script = (
        "import numpy as np, sum_model\n"
        "model = sum_model.Model()\n"
        "one = np.ones((1, 2), np.float32)\n"
        "for _ in range(3): found = model.run(one)['new']\n"
        "model.reset()\n"
        "print(found.tolist(), model.run(one)['new'].tolist())"
    )
    assert python(folder, script).strip() == "[[8.0, 8.0]] [[6.0, 6.0]]"


def assert_as_expected(app: Path, folder: Path) -> None:
    expected = np.load(app / "sample" / "expected-0.npy")
    found = np.fromfile(folder / "output-0.raw", expected.dtype).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


CPP = """
#include <fstream>
#include <iostream>
#include <iterator>
#include "edgekit.hpp"

int main(int, char** arguments) try {
  edgekit::Model model(arguments[1], 1);
  std::ifstream file(arguments[2], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const edgekit::Spec& spec = model.inputs.at(0);
  std::cout << spec.name << ' ' << edgekit::Typed(spec.dtype, spec.smallest, spec.shape) << '\\n';
  const edgekit::Array image(spec.shape, bytes.data(), bytes.size());
  std::ofstream out("output-0.raw", std::ios::binary);
  for (float value : model.Run({image})[0].As<float>()) {
    out.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\\n';
  return 1;
}
"""


def test_the_header_for_cpp_needs_no_other_file(app: Path, tmp_path: Path) -> None:
    for name in ("edgekit.h", "edgekit.hpp"):
        shutil.copyfile(app / "src" / name, tmp_path / name)
    (tmp_path / "main.cc").write_text(CPP)
    flags = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    checked(("g++", *flags, "main.cc", "-ldl", "-o", "program"), tmp_path)
    np.load(app / "sample" / "input-0.npy").tofile(tmp_path / "input.raw")
    library = app / "lib" / "model.so"
    assert checked(("./program", library, "input.raw"), tmp_path) == "image float32[1, 3, 8, 8]\n"
    assert_as_expected(app, tmp_path)
    (tmp_path / "short.raw").write_bytes(b"1234")
    short = ["./program", library, "short.raw"]
    ended = subprocess.run(short, cwd=tmp_path, capture_output=True, text=True)
    said = "the input image is float32[1, 3, 8, 8], not 4 bytes of [1, 3, 8, 8]\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@needs("rust")
def test_the_rust_example_gives_what_the_oracle_does(app: Path, tmp_path: Path) -> None:
    # rustup's compilers lie in the user's home, which a session of tests replaces.
    rustup = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    own = {"RUSTUP_HOME": str(rustup), **os.environ} if rustup.is_dir() else None
    command = ("cargo", "build", "--offline", "--quiet")
    subprocess.run(command, cwd=app / "rust", env=own, check=True, stdin=subprocess.DEVNULL)
    program = app / "rust" / "target" / "debug" / "tiny-model"
    np.load(app / "sample" / "input-0.npy").tofile(tmp_path / "input.raw")
    said = checked((program, "input.raw"), tmp_path)
    assert "input image: float32[1, 3, 8, 8]" in said
    assert "ran on 1 thread" in said
    assert_as_expected(app, tmp_path)
    (tmp_path / "short.raw").write_bytes(b"1234")
    ended = subprocess.run([program, "short.raw"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "the input image has 768 bytes, not 4 (code -1)\n"
    again = run_edgekit("export", "bundle", "-o", "app", folder=app.parent)
    assert again.code == 0, again.err


@pytest.mark.slow
@needs("go")
def test_the_go_example_gives_what_the_oracle_does(app: Path, tmp_path: Path) -> None:
    own = {**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(tmp_path / "cache")}
    program = tmp_path / "program"
    subprocess.run(["go", "build", "-o", program, "."], cwd=app / "go", env=own, check=True)
    np.load(app / "sample" / "input-0.npy").tofile(tmp_path / "input.raw")
    said = checked((program, "input.raw"), tmp_path)
    assert "input image: float32[1 3 8 8]" in said
    assert_as_expected(app, tmp_path)
    (tmp_path / "short.raw").write_bytes(b"1234")
    ended = subprocess.run([program, "short.raw"], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "the input image has 768 bytes, not 4\n")
