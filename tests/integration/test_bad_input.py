"""What people hand over by mistake or in malice, through the commands: the right exit code, one
sentence and a hint, no traceback, and nothing left behind.

Full and read-only disks are in test_build_storage.py, Ctrl-C and two builds at once in
test_build_interrupted.py, inputs that do not fit in test_run_verify_bench_commands.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from support.building import contents, run_edgekit, write_model
from support.bundles import make_bundle, sealed
from support.profiles import LINUX_BOARD

BAD_INPUT = 3
Spoil = Callable[[Path], None]


def error_of(*arguments: object, folder: Path, code: int = BAD_INPUT) -> dict[str, Any]:
    """The error that a command ends with, after which everything is as it was before."""
    before = contents(folder)
    ran = run_edgekit(
        *map(str, arguments),
        "--json",
        folder=folder,
        extra={"EDGEKIT_CACHE_DIR": str(folder.parent / "cache")},
    )
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    assert contents(folder) == before
    error: dict[str, Any] = json.loads(ran.out)["error"]
    assert error["message"] and error["hint"]
    assert error["exit_code"] == code
    return error


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def cut_off(path: Path) -> None:
    write_model(path)
    path.write_bytes(path.read_bytes()[:-100])


def without_its_weights(path: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    add = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([add], "g", values[:1], values[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("model.onnx", lambda path: path.write_bytes(b""), "empty"),
        ("model.tflite", lambda path: path.write_bytes(b""), "empty"),
        ("model.pt2", lambda path: path.write_bytes(b""), "empty"),
        ("model.onnx", lambda path: path.write_text("# Just some notes\n" * 9), "text"),
        ("model.onnx", cut_off, "damaged or cut off"),
        ("model.onnx", without_its_weights, "weights.bin"),
    ],
    ids=["empty", "empty TFLite", "empty PyTorch", "text", "truncated", "without weights"],
)
def test_what_is_no_whole_model_is_not_built(
    work: Path, name: str, spoil: Spoil, says: str
) -> None:
    spoil(work / name)

    assert says in error_of("build", name, "--board", "local", "-o", "b", folder=work)["message"]


def test_a_shape_that_the_model_does_not_take_is_not_built(work: Path) -> None:
    write_model(work / "model.onnx")

    shape = ("--shape", "image=1,3,8,9")
    error = error_of("build", "model.onnx", "--board", "local", *shape, "-o", "b", folder=work)

    assert "contradicts the model" in error["message"]


def test_a_board_that_nobody_knows_is_named_with_the_nearest(work: Path) -> None:
    write_model(work / "model.onnx")

    error = error_of("build", "model.onnx", "--board", "rpi44", "-o", "b", folder=work)

    assert "rpi44" in error["message"]
    assert "rpi4" in error["hint"]


def test_a_typo_in_a_board_file_is_named_with_its_line_and_the_right_word(work: Path) -> None:
    write_model(work / "model.onnx")
    (work / "boards").mkdir()
    text = LINUX_BOARD.replace("{name}", "mine").replace('"asimd"', '"asmid"')
    (work / "boards/mine.toml").write_text(text)
    line = text.split("\n").index('features = ["fp", "asmid", "crc32"]') + 1

    error = error_of("build", "model.onnx", "--board", "mine", "-o", "b", folder=work)

    told = " ".join([error["message"], *error["details"], error["hint"]])
    assert "mine.toml" in told
    assert f"line {line}" in told or f":{line}" in told
    assert "asmid" in told and "asimd" in told


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A manifest that is whole and says something else."""
    document = json.loads((folder / "manifest.json").read_text())
    change(document)
    (folder / "manifest.json").write_bytes(sealed(document))


@pytest.mark.parametrize("command", ["run", "verify", "bench"])
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda bundle: flip(bundle / "model.so", 5), "model.so"),
        (lambda bundle: flip(bundle / "reference/random/output-0.npy", -1), "output-0.npy"),
        (lambda bundle: flip(bundle / "manifest.json", 40), "manifest"),
        (
            lambda bundle: rewrite(bundle, lambda d: d["files"][0].update(path="../model.so")),
            "leads out of the bundle",
        ),
        (lambda bundle: rewrite(bundle, lambda d: d.update(schema_version=1)), "schema version 1"),
    ],
    ids=["library", "vector", "manifest", "leads out", "another schema"],
)
def test_a_bundle_that_is_not_what_was_built_is_not_used(
    work: Path, command: str, spoil: Spoil, says: str
) -> None:
    spoil(make_bundle(work / "bundle").path)

    assert says in error_of(command, "bundle", folder=work)["message"]
