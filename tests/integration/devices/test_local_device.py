"""A model runs in a process of its own: what happens to it is reported and not suffered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import CHECKOUT, environment, processes_with, request_for
from support.local_bundles import (
    built_bundle,
    copied,
    resealed,
    with_c_library,
    with_patched_kernels,
)
from support.on_device import bench_on, run_all_on, run_on
from support.onnx_models import onnx_model
from support.patience import stopped_at
from support.rpc_lab import eventually

from edgekit.base.errors import BundleError, DeviceError
from edgekit.base.events import Event, Events, StageProgress
from edgekit.base.tensors import TensorSpec
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan
from edgekit.devices.local.device import LocalDevice

WORKER = "edgekit.devices.local.worker"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built_bundle(tmp_path_factory.mktemp("local"))[1]


def failure(bundle: Bundle, timeout: float = 240) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        run_on(LocalDevice(timeout), bundle)
    assert caught.value.hint
    return caught.value


def on_loading(code: str) -> str:
    """C that runs while the library is loaded."""
    return (
        "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void start(void) {" + code + "}"
    )


def test_a_model_gives_the_oracles_numbers(bundle: Bundle) -> None:
    result = run_on(LocalDevice(), bundle)

    expected = bundle.reference_outputs()
    assert result.outputs.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(result.outputs[name], array, rtol=1e-4, atol=1e-5)
    assert result.seconds > 0


def test_one_loaded_model_runs_many_samples(bundle: Bundle) -> None:
    inputs = bundle.reference_inputs()
    samples = [inputs, {name: array * 0 for name, array in inputs.items()}, inputs]

    first, zero, again = (r.outputs["features"] for r in run_all_on(LocalDevice(), bundle, samples))

    np.testing.assert_array_equal(first, again)
    assert (first != zero).any()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 4)])
def test_a_tensor_without_elements_goes_in_and_comes_out(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["same"]),
        helper.make_node("ReduceSum", ["same"], ["sum"], keepdims=0),
    ]
    onnx.save(onnx_model(nodes, {"x": shape}, ["same", "sum"], {}), tmp_path / "model.onnx")
    request = request_for(tmp_path / "model.onnx")
    empty = build(request, tmp_path / "bundle", use_cache=False, isolated=False).bundle

    outputs = run_on(LocalDevice(), empty).outputs

    assert outputs["same"].shape == shape
    assert outputs["sum"] == 0


@pytest.mark.parametrize("offset", [0, 1, 4, 60])
def test_inputs_may_lie_anywhere_in_memory(bundle: Bundle, offset: int) -> None:
    inputs = bundle.reference_inputs()
    size = inputs["image"].nbytes
    shifted = np.empty(size + 64, np.uint8)[offset : offset + size]
    shifted = shifted.view(np.float32).reshape(inputs["image"].shape)
    shifted[...] = inputs["image"]
    turned = np.asfortranarray(inputs["image"])

    for array in (shifted, turned):
        result = run_on(LocalDevice(), bundle, {"image": array})
        expected = bundle.reference_outputs()["features"]
        np.testing.assert_allclose(result.outputs["features"], expected, rtol=1e-4, atol=1e-5)


def test_the_worker_loads_neither_the_compiler_nor_torch_nor_the_command_line(
    bundle: Bundle,
) -> None:
    program = f"""
import sys, os
from pathlib import Path
from edgekit.devices.local import worker
worker.Program({str(bundle.library)!r}, 1, print)
loaded = [name for name in ("tvm", "torch", "click", "rich", "edgekit.cli", "edgekit.bundle.folder")
          if sys.modules.get(name)]
maps = Path("/proc/self/maps").read_text()
print(loaded, "libtvm" in maps)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )

    assert done.stdout.strip() == "[] False", done.stderr


def test_a_crash_while_running_is_named_with_its_signal(bundle: Bundle, tmp_path: Path) -> None:
    error = failure(with_patched_kernels(bundle, tmp_path / "trap"))

    assert "crashed on local while running: SIGILL" in error.message
    assert "built for another CPU" in str(error.hint)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise(SIGSEGV);", "SIGSEGV (it touched memory that is not its own)"),
        ('fputs("the last words\\n", stderr); abort();', "SIGABRT (it gave up by itself)"),
        ("raise(SIGFPE);", "SIGFPE (an integer was divided by zero)"),
        ("raise(SIGBUS);", "SIGBUS"),
        ("kill(getpid(), SIGKILL);", "SIGKILL (it was killed from outside)"),
        ("raise(SIGRTMIN + 3);", "crashed on local while loading: signal "),
        ("_exit(3);", "ended its process on local with exit code 3"),
        ("_exit(0);", "ended its process on local with exit code 0"),
    ],
)
def test_an_end_while_loading_is_told_as_what_it_was(
    bundle: Bundle, tmp_path: Path, code: str, says: str
) -> None:
    error = failure(with_c_library(bundle, tmp_path / "bad", on_loading(code)))

    assert says in error.message
    assert "while loading" in error.message
    if "last words" in code:
        assert "the last words" in error.details


def test_what_a_model_prints_disturbs_nobody_and_floods_nothing(
    bundle: Bundle, tmp_path: Path
) -> None:
    noise = 'for (int i = 0; i < 200000; i++) puts("a line on stdout"); fflush(stdout); abort();'

    error = failure(with_c_library(bundle, tmp_path / "noisy", on_loading(noise)))

    assert "SIGABRT" in error.message
    assert 0 < len(error.details) < 50


def test_a_library_cut_off_is_reported(bundle: Bundle, tmp_path: Path) -> None:
    folder = copied(bundle, tmp_path / "cut")
    library = (folder / "model.so").read_bytes()
    (folder / "model.so").write_bytes(library[: len(library) // 3])

    error = failure(resealed(bundle, folder))

    assert "while loading" in error.message


def test_a_library_for_another_cpu_is_refused_before_it_is_loaded(
    bundle: Bundle, tmp_path: Path
) -> None:
    folder = copied(bundle, tmp_path / "foreign")
    library = bytearray((folder / "model.so").read_bytes())
    library[18:20] = (8).to_bytes(2, sys.byteorder)  # MIPS
    (folder / "model.so").write_bytes(library)

    assert "does not run on this machine" in failure(resealed(bundle, folder)).message


def test_a_library_that_is_none_is_a_broken_bundle(bundle: Bundle, tmp_path: Path) -> None:
    folder = copied(bundle, tmp_path / "text")
    (folder / "model.so").write_text("int main;")

    with pytest.raises(BundleError, match="not a shared library"):
        run_on(LocalDevice(), resealed(bundle, folder))


def test_outputs_that_the_manifest_does_not_promise_are_refused(bundle: Bundle) -> None:
    (entry,) = bundle.manifest.outputs
    spec = TensorSpec(entry.spec.name, entry.spec.dtype, (1, 2))
    lying = replace(bundle, manifest=replace(bundle.manifest, outputs=(replace(entry, spec=spec),)))

    with pytest.raises(BundleError, match="manifest promises"):
        run_on(LocalDevice(), lying)


def test_a_model_that_refuses_its_input_is_reported_with_its_words(bundle: Bundle) -> None:
    with pytest.raises(DeviceError, match="failed on local while running: "):
        run_on(LocalDevice(), bundle, {"image": np.zeros((1, 3, 8, 9), np.float32)})


def test_a_model_without_end_is_stopped(bundle: Bundle, tmp_path: Path) -> None:
    looping = with_patched_kernels(bundle, tmp_path / "loop", forever=True)

    error, limit = stopped_at("running", lambda seconds: failure(looping, timeout=seconds))

    assert f"gave no sign of life for {limit} s while running" in error.message
    assert "--timeout" in str(error.hint)


def stuck_run(bundle: Bundle, mark: str, temporary: Path) -> subprocess.Popen[bytes]:
    program = (
        "import sys; from pathlib import Path; from edgekit.bundle.folder import open_bundle;"
        "from edgekit.devices.local.device import LocalDevice; b = open_bundle(Path(sys.argv[1]))\n"
        "with LocalDevice().opened(b) as session: session.run(b.reference_inputs())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(bundle.path)],
        env=environment({"EDGEKIT_TEST_MARK": mark, "TMPDIR": str(temporary)}),
        stderr=subprocess.PIPE,
        cwd=CHECKOUT,
    )
    eventually(lambda: any(WORKER in line for line in processes_with(mark)))
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_model_ends_with_its_parent(
    bundle: Bundle, tmp_path: Path, number: signal.Signals
) -> None:
    looping = with_patched_kernels(bundle, tmp_path / "loop", forever=True)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mark = f"edgekit-{os.getpid()}-{number.name}-{tempfile.gettempprefix()}"
    process = stuck_run(looping, mark, temporary)

    process.send_signal(number)
    process.communicate(timeout=240)

    eventually(lambda: not processes_with(mark))
    assert list(temporary.iterdir()) == []
    assert process.returncode != 0


def test_measuring_gives_the_samples_asked_for(bundle: Bundle) -> None:
    plan = BenchPlan(warmup=2, runs=7, seconds=0.0, threads=1)

    measured = bench_on(LocalDevice(), bundle, plan)

    assert len(measured.nanoseconds) == 7
    assert all(sample > 0 for sample in measured.nanoseconds)
    assert (measured.warmup, measured.threads) == (2, 1)
    assert measured.memory.peak is None or measured.memory.peak > 10_000_000
    assert measured.host_before.cores == len(os.sched_getaffinity(0))


def test_measuring_goes_on_until_the_time_is_used_up(bundle: Bundle) -> None:
    plan = BenchPlan(warmup=0, runs=1, seconds=1.0)

    measured = bench_on(LocalDevice(), bundle, plan)

    assert len(measured.nanoseconds) > 1
    assert sum(measured.nanoseconds) <= 1e9 + max(measured.nanoseconds)


def test_the_display_says_no_more_than_that_it_warms_up(bundle: Bundle) -> None:
    seen: list[Event] = []
    # Long enough to be told of; on one thread, or it waits for others whose core is busy.
    plan = BenchPlan(warmup=400_000, runs=3, seconds=0.0, threads=1)

    bench_on(LocalDevice(), bundle, plan, Events(seen.append))

    details = {event.detail for event in seen if isinstance(event, StageProgress)}
    assert "warming up" in details
    assert details <= {"warming up", ""}


def test_the_number_of_threads_is_the_one_asked_for(bundle: Bundle) -> None:
    plan = BenchPlan(warmup=0, runs=1, seconds=0.0, threads=2)

    assert bench_on(LocalDevice(), bundle, plan).threads == 2
