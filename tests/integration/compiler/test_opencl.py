"""Kernels in OpenCL, run by pocl on this machine's CPU, and what a program says where it can't."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.building import request_for, run_edgekit, write_model
from support.deployed import run_deployed
from support.needs import needs
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.local.program import Program
from edgekit.models.model import import_model, open_model
from edgekit.profiles.board import load_board

pytestmark = needs("opencl")

RANDOM = np.random.default_rng(9)
BOARD = "local-opencl"


def compiled(model: onnx.ModelProto, folder: Path) -> OffloadedModel:
    onnx.save(model, folder / "net.onnx")
    imported = import_model(open_model(folder / "net.onnx"))
    return compile_model(imported, load_board(BOARD).target, linked=True)


def rules_of(made: OffloadedModel) -> dict[str, str]:
    return dict(made.rules)


def network() -> onnx.ModelProto:
    """Each family of schedules, a step that only the CPU can do, and steps around it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "d"], ["c"], group=8, pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["e", "rows"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Softmax", ["g"], ["h"], axis=-1),
        helper.make_node("TopK", ["h", "k"], ["values", "places"]),
        helper.make_node("Mul", ["values", "values"], ["y"]),
    ]
    constants = {
        "w": RANDOM.standard_normal((8, 3, 3, 3)).astype("float32"),
        "d": RANDOM.standard_normal((8, 1, 3, 3)).astype("float32"),
        "m": RANDOM.standard_normal((64, 20)).astype("float32"),
        "rows": np.array([8, 64], np.int64),
        "k": np.array([3], np.int64),
    }
    types = {"places": TensorProto.INT64}
    return onnx_model(nodes, {"x": [1, 3, 16, 16]}, ["y", "places"], constants, types)


def test_a_network_is_right_and_what_the_gpu_can_not_do_runs_on_the_cpu(tmp_path: Path) -> None:
    model = network()
    made = compiled(model, tmp_path)
    x = RANDOM.standard_normal((1, 3, 16, 16)).astype("float32")

    found = run_deployed(made, [x], target=load_board(BOARD).target)

    for one, wanted in zip(found, judged_by_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)
    assert [step.name for step in made.code.steps if step.kind != "gpu"] == ["sort"]
    assert sorted(set(rules_of(made).values())) == ["gpu each", "gpu tiles", "none"]


def test_threads_share_long_sums(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["a"]),
        helper.make_node("Flatten", ["x"], ["b"]),
        helper.make_node("MatMul", ["b", "m"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"], axis=-1),
        helper.make_node("ReduceMax", ["x"], ["e"], axes=[2, 3], keepdims=0),
        helper.make_node("ArgMax", ["b"], ["f"], axis=1),
    ]
    weights = {"m": RANDOM.standard_normal((867, 150)).astype("float32") / 30}
    model = onnx_model(
        nodes, {"x": [1, 3, 17, 17]}, ["a", "d", "e", "f"], weights, {"f": TensorProto.INT64}
    )
    made = compiled(model, tmp_path)
    x = RANDOM.standard_normal((1, 3, 17, 17)).astype("float32")

    found = run_deployed(made, [x], target=load_board(BOARD).target)

    for one, wanted in zip(found, judged_by_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)
    assert "gpu rows" in rules_of(made)["matmul"]
    assert {step.kind for step in made.code.steps} == {"gpu"}


def test_the_report_tells_what_the_gpu_does_by_its_structure(tmp_path: Path) -> None:
    bundle = build(
        request_for(write_model(tmp_path / "net.onnx"), BOARD), tmp_path / "b", isolated=False
    ).bundle

    (step,) = bundle.manifest.steps
    assert (step.kind, step.launches) == ("gpu", 1)
    assert step.bytes == 4 * (3 * 64 + 4 * 27 + 4 + 4 * 64)
    assert step.operations is not None
    assert 2 * 27 * 256 <= step.operations <= 2 * 30 * 256
    told = run_edgekit("inspect", str(bundle.path), folder=tmp_path)
    assert "1 of 1 step in 1 kernel, 2.19 KiB read and written, 6.5 operations a byte" in told.out


_FAULTS = """
#include <stddef.h>
#include <stdint.h>
void *dlsym(void *, const char *);
#define NEXT ((void *)-1l)
#ifdef NO_ROOM
void *clCreateBuffer(void *c, uint64_t f, size_t n, void *p, int *code) { *code = -4; return 0; }
#endif
#ifdef REFUSES
void *clCreateProgramWithSource(void *c, unsigned n, const char **s, const size_t *l, int *code) {
  const char *wrong = "kernel void f() { nonsense; }";
  void *(*next)(void *, unsigned, const char **, const size_t *, int *) =
      dlsym(NEXT, "clCreateProgramWithSource");
  return next(c, 1, &wrong, 0, code);
}
#endif
#ifdef LOST
int clEnqueueNDRangeKernel() { return -2; }
#endif
"""


def broken_opencl(fault: str, folder: Path) -> str:
    """An OpenCL that is the real one but for one fault."""
    source = folder / "faults.c"
    source.write_text(_FAULTS)
    library = folder / f"{fault}.so"
    linked = ["-Wl,--no-as-needed", "-l:libOpenCL.so.1"]
    command = ["gcc", "-w", "-shared", "-fPIC", f"-D{fault}", str(source), "-o", str(library)]
    subprocess.run([*command, *linked], check=True)
    return str(library)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("opencl")
    request = request_for(write_model(folder / "net.onnx"), BOARD)
    return build(request, folder / "b", isolated=False).bundle


def failure_of(bundle: Bundle, folder: Path, settings: Mapping[str, str]) -> str:
    """What a run says; the library's copy loads OpenCL anew."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"EDGEKIT_CACHE_DIR": str(folder / "cache"), **settings}.items():
            patch.setenv(name, value)
        library = folder / "model.so"
        library.write_bytes(bundle.library.read_bytes())
        program = Program(str(library), 1, lambda text: None)
        call = program.prepare([*map(np.ascontiguousarray, bundle.reference_inputs().values())])
        with pytest.raises(RuntimeError) as error:
            call()
    return str(error.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("NO_ROOM", "has no room to hold the tensors: the model takes 2576 bytes of it"),
        ("REFUSES", "does not compile the model's kernels (OpenCL's error -11): error: "),
        ("LOST", "was lost when it was to run a kernel (OpenCL's error -2)"),
    ],
)
def test_a_fault_of_the_device_is_a_sentence(
    bundle: Bundle, tmp_path: Path, fault: str, said: str
) -> None:
    library = broken_opencl(fault, tmp_path)
    assert said in failure_of(bundle, tmp_path, {"EDGEKIT_OPENCL_LIBRARY": library})


def test_a_machine_without_opencl_or_without_the_device_says_so(
    bundle: Bundle, tmp_path: Path
) -> None:
    without = failure_of(bundle, tmp_path, {"EDGEKIT_OPENCL_LIBRARY": "/nowhere/libOpenCL.so"})
    assert without.startswith("this machine has no OpenCL: /nowhere/libOpenCL.so does not load")


def test_another_device_than_any_is_not_found(bundle: Bundle, tmp_path: Path) -> None:
    told = failure_of(bundle, tmp_path, {"EDGEKIT_OPENCL_DEVICE": "Voodoo"})
    assert told.startswith("OpenCL has no device whose name holds Voodoo")


def test_the_second_start_finds_the_kernels_of_the_first_and_damage_costs_only_time(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    heard: list[str] = []
    inputs = [*map(np.ascontiguousarray, bundle.reference_inputs().values())]
    (wanted,) = bundle.reference_outputs().values()

    def run() -> None:
        program = Program(str(bundle.library), 1, heard.append)
        program.prepare(inputs)()
        np.testing.assert_allclose(program.outputs()[0], wanted, rtol=1e-4, atol=1e-5)

    run()
    assert len(heard) == 1
    assert heard[0].startswith("compiling the kernels for ")
    run()
    assert len(heard) == 1
    (file,) = (tmp_path / "cache" / "opencl").iterdir()
    file.write_bytes(file.read_bytes()[:-200] + bytes(200))
    run()
    file.write_bytes(b"\xff" * 20)
    run()
    assert len(heard) >= 2


def test_the_device_s_clock_times_kernels(bundle: Bundle) -> None:
    inputs = [*map(np.ascontiguousarray, bundle.reference_inputs().values())]
    (wanted,) = bundle.reference_outputs().values()
    program = Program(str(bundle.library), 1, lambda text: None)

    for _ in range(2):
        (kernel,) = program.profile(inputs, 5, 0, lambda done: None)["kernels"]  # type: ignore[misc]
        assert 0 < kernel["device_nanoseconds"] <= kernel["nanoseconds"]

    program.prepare(inputs)()
    np.testing.assert_allclose(program.outputs()[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_profile_shows_time_on_the_gpu(bundle: Bundle, tmp_path: Path) -> None:
    options = ("--runs", "3", "--profile", "3", "--json")
    told = run_edgekit("bench", str(bundle.path), *options, folder=tmp_path)

    (kernel,) = json.loads(told.out)["profile"]["kernels"]
    assert 0 < kernel["device_seconds"] <= kernel["seconds"]


def test_kernels_of_a_gpu_are_not_tuned(tmp_path: Path) -> None:
    write_model(tmp_path / "net.onnx")
    told = run_edgekit("tune", "net.onnx", "--board", BOARD, folder=tmp_path)
    assert told.code == 2
    assert "can't be tuned: rules alone schedule those of a GPU" in told.err
