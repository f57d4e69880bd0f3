"""The steps of `benchmarks.gpu_check`, as data: needs, seconds, and what each does."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Figures = dict[str, object]


class WrongError(Exception):
    """The error for a result that is not as it has to be."""


def _gpu() -> str:
    from edgekit.devices.local.cuda import NoCudaError, first_gpu

    try:
        first_gpu()
    except NoCudaError as error:
        return f"{error}: install NVIDIA's driver 580 or newer"
    return ""


def _compiler() -> str:
    from edgekit.base.errors import MissingToolError
    from edgekit.compiler.cuda.toolkit import find_toolkit

    try:
        find_toolkit()
    except MissingToolError as error:
        return f"{error.message}: {error.hint}"
    return ""


def _tensorrt() -> str:
    if nvidia_module() is None:
        return "no TensorRT for Python: pip install 'edgekit[tensorrt]', or tensorrt-cu13"
    return ""


def _headers() -> str:
    from edgekit.backends.tensorrt.headers import find_headers
    from edgekit.base.errors import MissingToolError
    from edgekit.profiles.board import load_board, toolchain_of

    board = load_board("local-cuda")
    try:
        find_headers(board, toolchain_of(board))
    except MissingToolError as error:
        return f"{error.message}: {error.hint}"
    return ""


def _nvml() -> str:
    from edgekit.devices.sensors.nvml import open_gpus

    gpus = open_gpus()
    if gpus is None:
        return "NVIDIA's management library tells of no GPU: pip install 'edgekit[nvml]'"
    gpus.close()
    return ""


NEEDS: Mapping[str, Callable[[], str]] = {
    "compiler": _compiler,
    "gpu": _gpu,
    "headers": _headers,
    "nvml": _nvml,
    "tensorrt": _tensorrt,
}
"""What a step may need; each returns why it is missing, or nothing."""


def nvidia_module() -> Any:
    """Import TensorRT's Python package, either product's; None without one."""
    for name in ("tensorrt", "tensorrt_rtx"):
        try:
            return importlib.import_module(name)
        except (ImportError, OSError):
            continue
    return None


def compile_kernels(folder: Path) -> Figures:
    """Compile a network's kernels for every generation of GPUs. No GPU is needed."""
    from edgekit.compiler.cuda.kernels import compile_cuda

    source = _compiled("MobileNetV2", folder).code.gpu.source
    (folder / "kernels.cu").write_text(source, encoding="ascii")
    figures: Figures = {"kernels": source.count("__launch_bounds__") // 2}
    with ThreadPoolExecutor() as pool:
        for arch, code in zip(_ARCHS, pool.map(partial(compile_cuda, source), _ARCHS), strict=True):
            figures[f"{arch} KiB"] = len(code) >> 10
    return figures


def build_engines(folder: Path) -> Figures:
    """Build an engine of each precision. TensorRT for RTX needs no GPU for it, TensorRT does."""
    nvidia = nvidia_module()
    figures: Figures = {"product": f"{nvidia.__name__} {nvidia.__version__}"}
    for precision, name in _ENGINES.items():
        started = time.monotonic()
        for number, region in enumerate(_regions(name, precision, folder)):
            plan = _plan(nvidia, region)
            (folder / f"{precision}-{number}.engine").write_bytes(plan)
        figures[f"{precision} s"] = round(time.monotonic() - started, 1)
    return figures


def run_engines(folder: Path) -> Figures:
    """Run an engine of each precision on the GPU, and compare it with onnxruntime."""
    from support.onnx_models import judged_by_onnxruntime

    from benchmarks.gpu_driver import Driver

    nvidia, driver = nvidia_module(), Driver()
    figures: Figures = {}
    for precision, name in _ENGINES.items():
        for region in _regions(name, precision, folder):
            feeds = _inputs(region)
            found, seconds = _run_engine(nvidia, driver, _plan(nvidia, region), feeds)
            wanted = judged_by_onnxruntime(region, feeds)
            largest = max(float(np.abs(one).max()) for one in wanted)
            off = max(
                float(np.abs(found[output.name] - one).max())
                for output, one in zip(region.graph.output, wanted, strict=True)
            )
            figures[f"{precision} us"] = round(seconds * 1e6)
            figures[f"{precision} off"] = off / largest
            allowed = {"fp32": 1e-4, "fp16": 2e-2, "int8": 5e-2}[precision]
            if not off <= allowed * largest:
                raise WrongError(f"{name} in {precision} is {off / largest:.2g} of the largest off")
    return figures


def describe_gpu(folder: Path) -> Figures:
    """Read the GPU's name, driver and limits."""
    from edgekit.devices.local.cuda import first_gpu

    gpu = first_gpu()
    return {"name": gpu.name, "arch": gpu.arch, "driver": ".".join(map(str, gpu.driver))}


def read_sensors(folder: Path) -> Figures:
    """Read what NVIDIA's management library tells of the GPU."""
    from edgekit.devices.sensors.nvml import open_gpus, snapshot_of

    gpus = open_gpus()
    if gpus is None:
        raise WrongError("the library told of a GPU a moment ago, and does not now")
    with closing(gpus):
        return {path.rpartition("/")[2]: value for path, value in snapshot_of(gpus).items()}


def copy_memory(folder: Path) -> Figures:
    """Copy both ways, from pinned and from ordinary memory; what comes back is what was sent."""
    from benchmarks.gpu_driver import Driver

    driver = Driver()
    figures: Figures = {}
    for size in (4 << 10, 1 << 20, 64 << 20):
        there = driver.allocated(size)
        for kind, memory in (("pinned", driver.pinned(size)), ("ordinary", np.empty(size, "u1"))):
            memory[:] = np.resize(np.arange(251, dtype="u1"), size)
            back = np.zeros(size, "u1")
            times = []
            for _ in range(5):
                started = time.perf_counter()
                driver.write(there, memory)
                driver.wait()
                middle = time.perf_counter()
                driver.read(back, there)
                times.append((middle - started, time.perf_counter() - middle))
            if not np.array_equal(back, memory):
                raise WrongError(f"{size} bytes of {kind} memory came back changed")
            best = map(min, zip(*times, strict=True))
            for way, seconds in zip(("to", "from"), best, strict=True):
                figures[f"{size >> 10} KiB {kind} {way}, GB/s"] = round(size / seconds / 1e9, 2)
        driver.free(there)
    return figures


def run_kernels(folder: Path) -> Figures:
    """Run every family of kernels against onnxruntime."""
    file = "tests/integration/compiler/test_cuda_kernels.py"
    words = ["-m", "pytest", "-q", file, "-k", "computes or share or one_result"]
    return {"pytest": _told(words, EDGEKIT_TEST_ON_GPU="1")}


def run_regions(folder: Path) -> Figures:
    """Deploy a network whose regions go to TensorRT, in each precision."""
    figures: Figures = {}
    for precision, name in _ENGINES.items():
        (folder / "edgekit.toml").write_text(f'[offload.tensorrt]\nprecision = "{precision}"\n')
        figures[precision] = _deployed(folder, name, "--offload", "tensorrt")
    return figures


def run_models(folder: Path) -> Figures:
    """Deploy networks in edgekit's own kernels: numbers, times, power."""
    return {name: _deployed(folder, name) for name in ("MobileNetV2", "ResNet-18", "YOLOv8n")}


def run_nodes(folder: Path) -> Figures:
    """Run a sample of ONNX's own cases of each operator."""
    words = ["--board", "local-cuda", "--no-docs", "--sample", "120"]
    _told(["benchmarks/onnx_nodes.py", *words, "--json", str(folder / "nodes.json")])
    verdicts = json.loads((folder / "nodes.json").read_text(encoding="utf-8"))
    return {"cases": len(verdicts)}


_ARCHS = ("compute_75", "sm_75", "sm_80", "sm_87", "sm_90", "sm_100", "sm_120")
_ENGINES = {"fp32": "MobileNetV2", "fp16": "MobileNetV2", "int8": "quantised"}
"""The network of each precision."""


@dataclass(frozen=True)
class Step:
    name: str
    needs: tuple[str, ...]
    seconds: int
    """The most that it may take."""
    work: Callable[[Path], Figures]


STEPS = (
    Step("compile", ("compiler",), 90, compile_kernels),
    Step("engines built", ("tensorrt",), 90, build_engines),
    Step("GPU", ("gpu",), 20, describe_gpu),
    Step("sensors", ("gpu", "nvml"), 20, read_sensors),
    Step("copies", ("gpu",), 30, copy_memory),
    Step("kernels", ("gpu", "compiler"), 90, run_kernels),
    Step("models", ("gpu", "compiler"), 120, run_models),
    Step("engines run", ("gpu", "tensorrt"), 90, run_engines),
    Step("regions", ("gpu", "compiler", "headers"), 90, run_regions),
    Step("nodes", ("gpu", "compiler"), 120, run_nodes),
)
"""The steps: what is most worth knowing comes first, so that a lack of time costs the least."""


def network(name: str) -> onnx.ModelProto:
    if name == "quantised":
        from support.tensorrt_regions import quantised_network

        return quantised_network()
    from benchmarks.networks import build

    return build(name)


def _compiled(name: str, folder: Path) -> Any:
    from edgekit.backends.offloading import compile_model
    from edgekit.models.model import import_model, open_model
    from edgekit.profiles.board import load_board

    onnx.save(network(name), folder / "net.onnx")
    model = import_model(open_model(folder / "net.onnx"))
    return compile_model(model, load_board("local-cuda").target, linked=True)


def _regions(name: str, precision: str, folder: Path) -> list[onnx.ModelProto]:
    from support.offloaded import selection_for

    from edgekit.backends.offloading import partition_model
    from edgekit.backends.tensorrt.graph import onnx_of
    from edgekit.models.model import import_model, open_model

    onnx.save(network(name), folder / "net.onnx")
    model = import_model(open_model(folder / "net.onnx"))
    found = partition_model(model, selection_for("tensorrt", precision=precision))
    half = precision == "fp16"
    return [onnx_of(region, half=half) for region in found.regions]


def _plan(nvidia: Any, region: onnx.ModelProto) -> bytes:
    from support.tensorrt_regions import parsed

    builder, built, problems = parsed(nvidia, region)
    if problems:
        raise WrongError(problems[0])
    plan = builder.build_serialized_network(built, builder.create_builder_config())
    if plan is None:
        raise WrongError("the builder gave no engine")
    return bytes(plan)


def _inputs(region: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        one.name: random.standard_normal(
            [dimension.dim_value for dimension in one.type.tensor_type.shape.dim]
        ).astype("float32")
        for one in region.graph.input
    }


def _run_engine(
    nvidia: Any, driver: Any, plan: bytes, feeds: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], float]:
    """Return the outputs, and the median seconds of a run without copies."""
    runtime = nvidia.Runtime(nvidia.Logger(nvidia.Logger.ERROR))
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    places, found = {}, {}
    for number in range(engine.num_io_tensors):
        name = engine.get_tensor_name(number)
        if name in feeds:
            array = np.ascontiguousarray(feeds[name])
        else:
            shape = tuple(engine.get_tensor_shape(name))
            array = found[name] = np.zeros(shape, nvidia.nptype(engine.get_tensor_dtype(name)))
        places[name] = driver.allocated(array.nbytes)
        driver.write(places[name], array)
        context.set_tensor_address(name, places[name].value)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        if not context.execute_async_v3(0):
            raise WrongError("the engine did not start")
        driver.wait()
        times.append(time.perf_counter() - started)
    for name, array in found.items():
        driver.read(array, places[name])
    return found, float(np.median(times))


def _deployed(folder: Path, name: str, *words: str) -> Figures:
    file = folder / f"{name.replace('-', '').lower()}.onnx"
    onnx.save(network(name), file)
    command = ["-m", "edgekit", "deploy", str(file), "--board", "local-cuda", "--json", *words]
    report = json.loads(_told(command, folder))
    return {"passed": report.get("passed"), "bench": report.get("bench")}


def _told(words: list[str], folder: Path | None = None, **settings: str) -> str:
    """Run Python and return what it prints, of a check its last line; WrongError if it fails."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-6:]
        raise WrongError(" | ".join(lines) or f"exit code {done.returncode}")
    return done.stdout if folder else done.stdout.strip().splitlines()[-1]
