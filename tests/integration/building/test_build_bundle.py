"""A build gives a bundle that runs and is right, the same bytes every time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.building import contents, environment, names_in, request_for, run_edgekit, write_model
from support.needs import needs
from support.on_device import run_on

from edgekit.base.cache import BuildCache
from edgekit.base.child import Child
from edgekit.base.errors import BuildError, MissingToolError, ModelError, ProjectError, UsageError
from edgekit.base.events import SILENT, Event, Events, Warned
from edgekit.base.files import sha256_file
from edgekit.building.build import build, default_destination
from edgekit.building.compile_process import ChildCompilation, compiling_in_child
from edgekit.building.products.library import LibraryJob
from edgekit.building.request import BuildRequest
from edgekit.bundle.folder import open_bundle
from edgekit.devices.local.device import LocalDevice
from edgekit.models.ends import Ends
from edgekit.models.model import open_model
from edgekit.models.preprocess import Preprocess
from edgekit.profiles.toolchain import load_toolchain

EM_AARCH64 = 183


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture
def request_here(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildRequest:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    return request_for(model)


@pytest.mark.parametrize(
    ("board", "toolchain"), [("rpi4", "arm-none-eabi"), ("local", "arm-none-eabi")]
)
def test_a_toolchain_for_another_processor_is_refused_before_anything_is_compiled(
    model: Path, tmp_path: Path, board: str, toolchain: str
) -> None:
    heard: list[Event] = []
    request = replace(request_for(model, board), toolchain=load_toolchain(toolchain))
    with pytest.raises(
        UsageError, match=f"{toolchain} makes code for cortex-m, and {board} runs"
    ) as e:
        build(request, tmp_path / "b", events=Events(heard.append))
    assert e.value.hint == f"leave --toolchain out: {board} has its own, {request.board.toolchain}"
    assert heard == []


def test_a_board_whose_own_toolchain_does_not_fit_is_named(model: Path, tmp_path: Path) -> None:
    request = request_for(model, "rpi4")
    board = replace(request.board, toolchain="arm-none-eabi")
    wrong = replace(request, board=board, toolchain=load_toolchain("arm-none-eabi"))
    with pytest.raises(UsageError) as caught:
        build(wrong, tmp_path / "b")
    assert str(board.origin) in str(caught.value.hint)


def test_a_bundle_runs_and_agrees_with_the_oracle(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    bundle = build(request_here, tmp_path / "b").bundle
    outputs = run_on(LocalDevice(), bundle).outputs
    expected = bundle.reference_outputs()
    assert list(outputs) == list(expected) == ["features"]
    np.testing.assert_allclose(outputs["features"], expected["features"], rtol=1e-5, atol=1e-6)
    assert expected["features"].max() > 0


def test_the_manifest_says_what_was_built_from_what(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    manifest = build(replace(request_here, seed=3), tmp_path / "b", isolated=False).bundle.manifest
    assert manifest.model.sha256 == request_here.source.sha256
    assert (manifest.model.name, manifest.model.file) == ("tiny", "tiny.onnx")
    assert manifest.board.name == "local"
    assert json.loads(manifest.target) == json.loads(request_here.board.target.as_json())
    assert manifest.toolchain.compiler
    assert manifest.versions.tvm.startswith("0.27")
    assert manifest.oracle.name == "onnxruntime"
    assert manifest.seed == 3
    assert manifest.inputs[0].spec.shape == (1, 3, 8, 8)
    assert manifest.outputs[0].spec.shape == (1, 4, 8, 8)
    for entry in manifest.files:
        file = tmp_path / "b" / entry.path
        assert (file.stat().st_size, sha256_file(file)) == (entry.size, entry.sha256)


def test_two_builds_in_two_places_give_the_same_bytes(model: Path, tmp_path: Path) -> None:
    built = []
    for number, place in enumerate(("one", "another/place")):
        folder = tmp_path / place
        scratch = tmp_path / f"tmp{number}"
        folder.mkdir(parents=True)
        scratch.mkdir()
        extra = {
            "PYTHONHASHSEED": str(number),
            "EDGEKIT_CACHE_DIR": str(scratch / "cache"),
            "TMPDIR": str(scratch),
        }
        ran = run_edgekit(
            *("build", str(model), "--board", "local", "-o", f"b{number}", "--zip", "--no-cache"),
            folder=folder,
            extra=extra,
        )
        assert ran.code == 0, ran.err
        built.append(contents(folder / f"b{number}"))
        built[-1]["zip"] = (folder / f"b{number}.zip").read_bytes()
        assert names_in(folder) == {f"b{number}", f"b{number}.zip"}
    assert built[0] == built[1]
    assert json.loads(built[0]["manifest.json"])["reproducible"] is True


def test_the_library_holds_no_path_and_no_build_id(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    library = build(request_here, tmp_path / "b", isolated=False).bundle.library.read_bytes()
    for trace in (os.fsencode(tmp_path.name), b"scratch", b"edgekit-tmp", b".note.gnu.build-id"):
        assert trace not in library


def test_compiled_apart_or_here_the_bytes_are_the_same(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    apart = build(request_here, tmp_path / "apart", use_cache=False)
    here = build(request_here, tmp_path / "here", use_cache=False, isolated=False)
    assert contents(apart.bundle.path) == contents(here.bundle.path)


def test_an_archive_beside_the_folder_holds_the_same_bundle(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    result = build(request_here, tmp_path / "b.v1", archive=True, isolated=False)
    assert result.archive == tmp_path / "b.v1.zip"
    assert open_bundle(result.archive).digest == result.bundle.digest


def test_an_archive_that_stays_behind_is_mentioned(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    build(request_here, tmp_path / "b", archive=True, isolated=False)
    told: list[Event] = []
    build(request_here, tmp_path / "b", events=Events(told.append))
    assert any(isinstance(event, Warned) and "b.zip" in event.text for event in told)


@needs("g++-aarch64")
def test_a_build_for_another_architecture_is_of_that_architecture(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    bundle = build(request_for(model, "rpi4"), tmp_path / "b", isolated=False).bundle
    header = bundle.library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == EM_AARCH64


def test_a_repeated_build_comes_from_the_cache_without_importing_tvm(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    arguments = ["build", str(request_here.source.path), "-b", "local", "--json", "-o"]
    first = run_edgekit(*arguments, "b", folder=tmp_path)
    assert json.loads(first.out)["from_cache"] is False
    program = (
        "import sys; from edgekit.cli.program import run_command_line; "
        "code = run_command_line(sys.argv[1:]); "
        "print('tvm' in sys.modules, 'onnxruntime' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "again"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["from_cache"] is True
    assert done.stderr.split() == ["False", "False"]
    assert contents(tmp_path / "again") == contents(tmp_path / "b")


def test_what_changes_the_bytes_misses_the_cache(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    build(request_here, tmp_path / "b", isolated=False)
    other = with_ends(replace(request_here, seed=1), {"image": Preprocess("NCHW", on="host")})
    result = build(other, tmp_path / "b", isolated=False)
    assert not result.from_cache
    assert result.bundle.manifest.inputs[0].preprocess == Preprocess("NCHW", on="host")
    assert len(BuildCache().entries()) == 2


def test_dumping_the_ir_compiles_even_what_is_cached(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    build(request_here, tmp_path / "b", isolated=False)
    result = build(request_here, tmp_path / "b", dump_ir=tmp_path / "ir")
    assert not result.from_cache
    assert any(name.startswith("0-") for name in names_in(tmp_path / "ir"))


def test_a_build_replaces_a_bundle_and_nothing_else(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    build(request_here, tmp_path / "b", isolated=False)
    build(replace(request_here, seed=1), tmp_path / "b", isolated=False)
    assert open_bundle(tmp_path / "b").manifest.seed == 1
    (tmp_path / "b/notes.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        build(request_here, tmp_path / "b", isolated=False)
    assert (tmp_path / "b/notes.txt").read_text() == "precious"
    assert open_bundle(tmp_path / "b").manifest.seed == 1


def test_a_folder_of_other_things_is_not_replaced(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for out in ("photos", "file"):
        with pytest.raises(UsageError) as caught:
            build(request_here, tmp_path / out, isolated=False)
        assert caught.value.hint
    assert (tmp_path / "photos/cat.jpg").read_text() == "precious"
    assert (tmp_path / "file").read_text() == "precious"


def test_the_folder_of_the_workspace_is_not_replaced(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    board = replace(request_here.board, folder=tmp_path / "empty" / "inner")
    for out in (tmp_path / "empty", tmp_path / "empty" / "inner"):
        with pytest.raises(UsageError, match="the folder you are in"):
            build(replace(request_here, board=board), out)


def test_a_missing_compiler_is_named_with_what_installs_it(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    tools = replace(request_here.toolchain.tools, cc="no-such-compiler")
    toolchain = replace(request_here.toolchain, tools=tools)
    with pytest.raises(MissingToolError, match="no-such-compiler") as caught:
        build(replace(request_here, toolchain=toolchain), tmp_path / "b")
    assert caught.value.hint
    assert not (tmp_path / "b").exists()


def test_a_compiler_that_fails_is_quoted(request_here: BuildRequest, tmp_path: Path) -> None:
    toolchain = replace(request_here.toolchain, link_flags=("-lno-such-library-anywhere",))
    with pytest.raises(BuildError) as caught:
        build(replace(request_here, toolchain=toolchain), tmp_path / "b", isolated=False)
    assert any("no-such-library-anywhere" in line for line in caught.value.details)
    assert names_in(tmp_path) <= {"cache"}
    assert BuildCache().entries() == ()
    assert names_in(BuildCache().root / "work") == set()


def test_a_compile_process_that_is_killed_is_a_build_error(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    job = LibraryJob(request_here.source, tmp_path, None, request_here.board.target)
    with (
        pytest.raises(BuildError, match="SIGKILL") as caught,
        Child("edgekit.building.compile_worker") as child,
    ):
        one = ChildCompilation(child, job, SILENT)
        one.imported()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        one.compiled()
    assert caught.value.hint
    assert "memory" in caught.value.hint


def test_an_error_in_the_compile_process_arrives_as_it_was(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    broken = tmp_path / "cut.onnx"
    broken.write_bytes(request_here.source.path.read_bytes())
    source = replace(request_here.source, path=broken)
    broken.write_bytes(b"\x08")  # cut short after it was looked at
    job = LibraryJob(source, tmp_path, None, request_here.board.target)
    with pytest.raises(ModelError) as caught, compiling_in_child(job, SILENT) as one:
        one.imported()
    assert "Traceback" in str(caught.value.__cause__)


def with_ends(request: BuildRequest, preprocess: dict[str, Preprocess]) -> BuildRequest:
    return replace(request, source=replace(request.source, ends=Ends(preprocess)))


def test_preprocessing_for_an_input_that_is_none_is_refused(
    request_here: BuildRequest, tmp_path: Path
) -> None:
    wrong = with_ends(request_here, {"imge": Preprocess("NCHW", on="host")})
    with pytest.raises(ProjectError, match="imge") as caught:
        build(wrong, tmp_path / "b", isolated=False)
    assert caught.value.hint == "its inputs are image"


def test_a_prefix_is_for_boards_that_get_c(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--prefix"):
        build(replace(request_for(model, "local"), prefix="net"), tmp_path / "b")
    with pytest.raises(UsageError, match="can't be what the names"):
        build(replace(request_for(model, "mps2-an386"), prefix="3d"), tmp_path / "b")


def test_the_default_place_names_model_and_board(model: Path, tmp_path: Path) -> None:
    ran = run_edgekit(
        *("build", str(model), "--board", "local", "--json"),
        folder=tmp_path,
        extra={"EDGEKIT_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert ran.code == 0, ran.err
    assert open_bundle(tmp_path / "build/tiny-local").manifest.board.name == "local"
    assert json.loads(ran.out)["bundle"]["manifest"]["model"]["name"] == "tiny"


def test_a_model_changed_in_place_is_built_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    first = build(request_for(write_model(tmp_path / "m.onnx")), tmp_path / "b", isolated=False)
    write_model(tmp_path / "m.onnx", scale=0.2)
    second = build(request_for(tmp_path / "m.onnx"), tmp_path / "b", isolated=False)
    assert not second.from_cache
    assert second.bundle.digest != first.bundle.digest
    assert open_model(tmp_path / "m.onnx").sha256 == second.bundle.manifest.model.sha256


def test_a_bundle_of_another_model_is_replaced_with_a_warning(tmp_path: Path) -> None:
    """The user named the folder."""
    heard: list[Event] = []
    first = write_model(tmp_path / "model.onnx")
    (tmp_path / "b").mkdir()
    second = write_model(tmp_path / "b" / "model.onnx", scale=0.3)
    for model in (first, first, second):
        build(request_for(model), tmp_path / "out", isolated=False, events=Events(heard.append))

    warned = [event.text for event in heard if isinstance(event, Warned)]
    assert [text for text in warned if "another model.onnx" in text] == warned[-1:]
    assert len(warned) == 1


def test_models_of_one_name_have_default_folders_of_their_own(tmp_path: Path) -> None:
    first = write_model(tmp_path / "model.onnx")
    (tmp_path / "b").mkdir()
    second = write_model(tmp_path / "b" / "model.onnx", scale=0.3)

    def built(model: Path) -> Path:
        request = request_for(model)
        return build(request, default_destination(request, tmp_path), isolated=False).bundle.path

    folders = [built(first), built(second)]
    assert folders[0] == tmp_path / "build" / "model-local"
    write_model(first, scale=0.7)  # a model that is trained again keeps its folder
    assert [built(first), built(second)] == folders
    for model, folder in zip((first, second), folders, strict=True):
        assert open_bundle(folder).manifest.model.sha256 == open_model(model).sha256
