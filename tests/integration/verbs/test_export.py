"""An exported application for this machine: compiled by CMake, run, compared with the oracle."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import (
    contents,
    request_for,
    run_edgekit,
    run_with_mount,
    tmpfs,
    write_embedding,
    write_model,
)
from support.exports import built, checked
from support.local_bundles import built_for_machine
from support.needs import needs
from support.onnx_models import onnx_model
from support.rpc_lab import eventually

from edgekit.base.errors import UsageError
from edgekit.building.build import build
from edgekit.bundle.folder import open_bundle
from edgekit.verbs.export.application import default_destination, export

pytestmark = needs("cmake")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built, and installed into a folder beside it, by way of the command line."""
    place = tmp_path_factory.mktemp("export")
    build(request_for(write_model(place / "tiny.onnx")), place / "bundle", isolated=False)
    ran = run_edgekit("export", "bundle", "-o", "app", "--zip", "--json", folder=place)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["program"], report["board"]) == ("tiny-model", "local")
    said = built(
        place / "app",
        f"-DCMAKE_INSTALL_PREFIX={place / 'installed'}",
        f"-DSYSTEMD_UNIT_DIR={place / 'units'}",
    )
    assert "warning" not in said
    checked(("cmake", "--install", "build"), place / "app")
    return place / "app"


def program(app: Path) -> Path:
    return app / "build" / "bin" / "tiny-model"


def assert_as_expected(found: Path, app: Path) -> None:
    expected = np.load(app / "sample" / "expected-0.npy")
    np.testing.assert_allclose(np.load(found), expected, rtol=1e-4, atol=1e-5)


def test_the_program_computes_what_the_oracle_does(app: Path, tmp_path: Path) -> None:
    sample = app / "sample" / "input-0.npy"
    said = checked((program(app), "--once", sample, "--out", "out", "--repeat", "3"), tmp_path)
    assert_as_expected(tmp_path / "out" / "output-0.npy", app)
    assert "features float32[1, 4, 8, 8]:" in said
    assert "median of 3 runs" in said


def test_it_gives_what_the_oracle_does_at_the_edges_too(app: Path, tmp_path: Path) -> None:
    edges = sorted(folder.name for folder in (app / "sample").iterdir() if folder.is_dir())
    assert edges == ["largest", "nan", "zeros"]
    for edge in edges:
        sample = app / "sample" / edge
        checked((program(app), "--once", sample / "input-0.npy", "--out", edge), tmp_path)
        found = next((tmp_path / edge).glob("*.npy"))
        np.testing.assert_allclose(np.load(found), np.load(sample / "expected-0.npy"), 1e-3, 1e-2)


def test_bare_bytes_do_as_well(app: Path, tmp_path: Path) -> None:
    np.load(app / "sample" / "input-0.npy").tofile(tmp_path / "frame.raw")
    checked((program(app), "--once", "frame.raw", "--out", "out"), tmp_path)
    assert_as_expected(tmp_path / "out" / "output-0.npy", app)


def test_it_runs_where_it_is_installed_and_without_this_machines_folders(
    app: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(app.parent / "installed", tmp_path / "elsewhere")
    checked((moved / "bin" / "tiny-model", "--describe"), tmp_path)
    sample = app / "sample" / "input-0.npy"
    checked((moved / "bin" / "tiny-model", "--once", sample), tmp_path)
    for path in (file for file in moved.rglob("*") if file.is_file()):
        assert str(app).encode() not in path.read_bytes()


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported program of a model that is given indices."""
    place = tmp_path_factory.mktemp("embedding")
    bundle = build(
        request_for(write_embedding(place / "rows.onnx")), place / "bundle", isolated=False
    ).bundle
    export(bundle, place / "app")
    built(place / "app")
    return place / "app" / "build" / "bin" / "rows-model"


@pytest.mark.parametrize("wrong", [5, -6, 2**40, -(2**63)])
def test_an_index_outside_of_a_tensor_is_named(embedding: Path, tmp_path: Path, wrong: int) -> None:
    np.save(tmp_path / "ids.npy", np.array([0, wrong, 1]))
    ended = subprocess.run(
        [embedding, "--once", tmp_path / "ids.npy"], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert f"'ids' holds the index {wrong}, which is outside of -5 to 4" in ended.stderr


def test_indices_at_both_ends_are_rows(embedding: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([-1, -5, 4]))
    checked((embedding, "--once", "ids.npy", "--out", "out"), tmp_path)
    assert np.load(tmp_path / "out" / "output-0.npy")[:, 0].tolist() == [16, 0, 16]


@pytest.mark.parametrize(
    ("shape", "dtype", "complaint"),
    [
        ((1, 3, 8, 9), "float32", "image is float32[1, 3, 8, 8], not float32[1, 3, 8, 9]"),
        ((1, 3, 8, 8), "float64", "not float64[1, 3, 8, 8]"),
    ],
)
def test_an_input_that_does_not_fit_is_one_sentence(
    app: Path, tmp_path: Path, shape: tuple[int, ...], dtype: str, complaint: str
) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros(shape, dtype))
    ended = subprocess.run(
        [program(app), "--once", tmp_path / "wrong.npy"], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert complaint in ended.stderr


def test_mistakes_on_its_command_line_end_with_2_and_failures_with_1(app: Path) -> None:
    for arguments, code in (
        ((), 2),
        (("--once",), 2),
        (("--frobnicate",), 2),
        (("--once", "x.npy", "--repeat", "-1"), 2),
        (("--once", "no-such.npy"), 1),
        (("--describe", "extra"), 2),
        (("--once", "x.npy", "--model", "/no/such.so"), 1),
    ):
        ended = subprocess.run([program(app), *arguments], capture_output=True, text=True)
        assert ended.returncode == code, arguments
        assert ended.stderr.startswith("tiny-model: ")


@contextmanager
def serving(app: Path, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [program(app), "--watch", folder, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            eventually(lambda: (folder / "in").is_dir() and (folder / "out").is_dir())
            yield service
        finally:
            service.send_signal(signal.SIGTERM)
            service.communicate(timeout=240)


def ask(folder: Path, source: Path, name: str) -> None:
    shutil.copyfile(source, folder / "in" / ".unfinished")
    (folder / "in" / ".unfinished").rename(folder / "in" / name)


def test_the_service_answers_files_with_files(app: Path, tmp_path: Path) -> None:
    sample = app / "sample" / "input-0.npy"
    (tmp_path / "in").mkdir()
    ask(tmp_path, sample, "earlier.npy")  # before it runs
    with serving(app, tmp_path) as service:
        ask(tmp_path, sample, "a.npy")
        ask(tmp_path, app / "README.md", "bad.npy")
        ask(tmp_path, sample, "b.npy")
        eventually(lambda: (tmp_path / "out" / "b.npy").is_dir())
        for name in ("earlier.npy", "a.npy", "b.npy"):
            assert_as_expected(tmp_path / "out" / name / "output-0.npy", app)
        assert "is not a .npy file" in (tmp_path / "out" / "bad.npy" / "error.txt").read_text()
        assert service.poll() is None
    assert service.returncode == 0, "SIGTERM is the end in good order"
    assert not [*(tmp_path / "in").iterdir(), *(tmp_path / "work").iterdir()]


def test_a_request_that_ended_the_program_is_not_tried_again(app: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shutil.copyfile(app / "sample" / "input-0.npy", tmp_path / "work" / "deadly.npy")
    error = tmp_path / "out" / "deadly.npy" / "error.txt"
    with serving(app, tmp_path):
        eventually(error.is_file)
        assert "ended while it worked on this" in error.read_text()
        eventually(lambda: not (tmp_path / "work" / "deadly.npy").exists())


def test_the_service_keeps_so_many_answers_and_no_more(app: Path, tmp_path: Path) -> None:
    with serving(app, tmp_path, "--keep", "2"):
        for name in ("a.npy", "b.npy", "c.npy"):
            ask(tmp_path, app / "sample" / "input-0.npy", name)
            eventually(lambda name=name: (tmp_path / "out" / name).is_dir())
        eventually(lambda: not (tmp_path / "out" / "a.npy").exists())
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["b.npy", "c.npy"]


def test_links_and_folders_are_no_requests(app: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a-link.npy").symlink_to(app / "sample" / "input-0.npy")
    (tmp_path / "in" / "folder").mkdir()
    with serving(app, tmp_path):
        ask(tmp_path, app / "sample" / "input-0.npy", "b.npy")
        eventually(lambda: (tmp_path / "out" / "b.npy").is_dir())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b.npy"]
    assert (tmp_path / "in" / "a-link.npy").is_symlink()


@needs("systemd")
def test_systemd_finds_nothing_wrong_with_the_unit_and_calls_it_safe(app: Path) -> None:
    unit = app.parent / "units" / "tiny-model.service"
    checked(("systemd-analyze", "verify", "--man=no", unit), app)
    # In tenths: 1.5 of 10; an unprotected service has 9.6.
    checked(("systemd-analyze", "security", "--offline=true", "--threshold=15", unit), app)
    text = unit.read_text()
    assert f"ExecStart={app.parent / 'installed'}/bin/tiny-model" in text
    assert "Restart=on-failure" in text
    assert "MemoryMax=" in text


def test_the_archive_is_the_folder(app: Path) -> None:
    with zipfile.ZipFile(app.parent / "app.zip") as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    there = {name: data for name, data in contents(app).items() if not name.startswith("build/")}
    assert packed == there


def test_nothing_of_tvm_and_nothing_of_this_machine_comes_along(app: Path) -> None:
    assert [path for path in app.rglob("*tvm*") if path.name != "tvm_call.c"] == []
    for name, data in contents(app).items():
        if not name.startswith("build/"):
            assert str(app.parent).encode() not in data, name


def test_exporting_again_replaces_what_nobody_changed(app: Path, tmp_path: Path) -> None:
    bundle = open_bundle(app.parent / "bundle")
    first = export(bundle, tmp_path / "mine")
    before = contents(tmp_path / "mine")
    export(bundle, tmp_path / "mine")
    assert contents(tmp_path / "mine") == before
    assert first.path == tmp_path / "mine"
    with (tmp_path / "mine" / "src" / "main.cc").open("a") as stream:
        stream.write("// mine\n")
    with pytest.raises(UsageError, match=r"src/main\.cc"):
        export(bundle, tmp_path / "mine")
    assert default_destination(bundle, Path("here")) == Path("here/build/tiny-model-local-app")


@needs("mounts")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(app: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    arguments = ("export", "bundle", "-o", str(full / "app"))
    ran = run_with_mount(tmpfs("size=64k"), full, arguments, folder=app.parent)
    assert ran.code == 9, ran.err
    assert "could not write the application" in ran.err
    assert ran.out.splitlines()[-1].strip() == ""


def test_a_model_that_needs_tvms_runtime_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "tiny.onnx")
    bundle = built_for_machine(model, tmp_path / "bundle", monkeypatch)
    with pytest.raises(UsageError, match=r"needs TVM's runtime"):
        export(bundle, tmp_path / "app")
    assert not (tmp_path / "app").exists()


@pytest.mark.slow
def test_two_inputs_two_outputs_and_names_that_are_code(tmp_path: Path) -> None:
    names = ('a"; int x = 1; //', "b\\"), ("sum??/", "größe\n")
    (a, b), (total, product) = names
    nodes = [helper.make_node("Add", [a, b], [total]), helper.make_node("Mul", [a, b], [product])]
    made = onnx_model(nodes, {a: [2, 3], b: [2, 3]}, [total, product], {})
    onnx.save(made, tmp_path / "two.onnx")
    bundle = build(request_for(tmp_path / "two.onnx"), tmp_path / "bundle", isolated=False).bundle
    app = export(bundle, tmp_path / "app").path
    assert "warning" not in built(app)
    two = app / "build" / "bin" / "two-model"
    samples = [app / "sample" / f"input-{i}.npy" for i in range(2)]
    checked((two, "--once", *samples, "--out", "out"), tmp_path)
    described = checked((two, "--describe"), tmp_path)
    for name in (a, b, total, product):
        assert f"put {name}: float32[2, 3]\n" in described
    answers = [tmp_path / "out" / f"output-{i}.npy" for i in range(2)]
    command = [two, "--watch", tmp_path / "served"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as service:
        try:
            eventually((tmp_path / "served" / "out").is_dir)
            ask(tmp_path / "served", samples[1], "q.input-1.npy")
            ask(tmp_path / "served", samples[0], "q.input-0.npy")
            ask(tmp_path / "served", samples[0], "alone.input-0.npy")
            eventually((tmp_path / "served" / "out" / "alone" / "error.txt").is_file)
        finally:
            service.terminate()
    answers += [tmp_path / "served" / "out" / "q" / f"output-{i}.npy" for i in range(2)]
    for i, answer in enumerate(answers):
        expected = np.load(app / "sample" / f"expected-{i % 2}.npy")
        np.testing.assert_allclose(np.load(answer), expected, rtol=1e-5)
