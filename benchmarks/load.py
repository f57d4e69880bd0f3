"""What a model's weights cost before the first answer: built, loaded, run once, on this machine.

    python -m benchmarks.load

MobileNetV2 (trained, 14 MB) and a network shaped like AlexNet (random weights, 110 MB). Every
start is a process of its own; "cold" is one where the library is not in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.model_zoo import MODELS, fetch
from edgekit.api.functions import make_request
from edgekit.base.events import Event, Events, StageEnded
from edgekit.base.wording import duration, size
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.devices.local.program import Program

STARTS = 5
RUNS = 5
EMBEDDING = ("write the object files", "link the library")
"""The stages in which weights become part of a library."""


@dataclass(frozen=True)
class Memory:
    own: int
    """Bytes that only this process has."""
    of_files: int
    """Bytes that are pages of files, shared and droppable."""


@dataclass(frozen=True)
class Start:
    load: float
    """Seconds, like every time here."""
    first: float
    later: float
    loaded: Memory
    ran: Memory
    peak: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one-start", nargs=2, type=Path, help=argparse.SUPPRESS)
    one = parser.parse_args().one_start
    if one is not None:
        print(json.dumps(asdict(start_once(*one))))
        return
    print(f"{platform.machine()}, {os.cpu_count()} CPUs; times are medians of {STARTS} starts\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_alexnet(folder / "alexnet.onnx")
        (mobilenet,) = (model for model in MODELS if model.file == "mobilenet_v2.onnx")
        for model in (fetch(mobilenet), folder / "alexnet.onnx"):
            report(model, folder / model.stem)


def report(model: Path, out: Path) -> None:
    stages: dict[str, float] = {}

    def hear(event: Event) -> None:
        if isinstance(event, StageEnded):
            stages[event.title] = event.seconds

    request = make_request(model, "local", None, {}, {})
    result = build(request, out, use_cache=False, events=Events(hear))
    library = next(file for file in result.bundle.manifest.files if file.role == "library")
    warm = [start(result.bundle) for _ in range(STARTS)]
    cold = [start(result.bundle, cold=True) for _ in range(STARTS)]

    def middle(starts: list[Start], of: Callable[[Start], float]) -> float:
        return statistics.median(of(one) for one in starts)

    def memory(of: Callable[[Start], float]) -> str:
        return size(round(middle(warm, of)))

    print(f"| {model.stem} | |\n|---|---|")
    print(f"| build | {duration(result.seconds)} |")
    embedding = sum(stages[title] for title in EMBEDDING)
    print(f"| of which objects and linking | {duration(embedding)} |")
    print(f"| library | {size(library.size)} |")
    for name, starts in (("", warm), (", cold", cold)):
        print(f"| load{name} | {duration(middle(starts, lambda s: s.load))} |")
        print(f"| load and first inference{name} | ", end="")
        print(f"{duration(middle(starts, lambda s: s.load + s.first))} |")
    print(f"| later inferences | {middle(warm, lambda s: s.later) * 1000:.3f} ms |")
    print(f"| memory of its own, loaded | {memory(lambda s: s.loaded.own)} |")
    print(f"| memory of its own, after an inference | {memory(lambda s: s.ran.own)} |")
    print(f"| pages of files, after an inference | {memory(lambda s: s.ran.of_files)} |")
    print(f"| resident at the peak, both together | {memory(lambda s: s.peak)} |\n", flush=True)


def start(bundle: Bundle, *, cold: bool = False) -> Start:
    library = bundle.path / "model.so"
    if cold:
        with library.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, "-m", "benchmarks.load", "--one-start", str(library)]
    command.append(str(bundle.path / bundle.manifest.vectors[0].inputs[0]))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer = json.loads(done.stdout)
    loaded, ran = Memory(**answer.pop("loaded")), Memory(**answer.pop("ran"))
    return Start(loaded=loaded, ran=ran, **answer)


def start_once(library: Path, reference: Path) -> Start:
    """Load and run in this process, which has done neither yet."""
    values = np.ascontiguousarray(np.load(reference))
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    memory = resident()

    def more() -> Memory:
        now = resident()
        return Memory(now.own - memory.own, now.of_files - memory.of_files)

    begun = time.perf_counter()
    program = Program(str(library), 1, print)
    loaded = time.perf_counter()
    memory_loaded = more()
    run = program.prepare([values])
    first_begun = time.perf_counter()
    run()
    first = time.perf_counter() - first_begun
    memory_ran, peak = more(), status("VmHWM") - before
    later = []
    for _ in range(RUNS):
        moment = time.perf_counter()
        run()
        later.append(time.perf_counter() - moment)
    return Start(loaded - begun, first, statistics.median(later), memory_loaded, memory_ran, peak)


def resident() -> Memory:
    return Memory(status("RssAnon"), status("RssFile"))


def status(key: str) -> int:
    match = re.search(rf"^{key}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


def write_alexnet(path: Path) -> None:
    """Five convolutions and three dense layers, which hold nearly all of the weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights = [], []

    def parameter(name: str, *shape: int) -> str:
        spread = 1 / np.sqrt(np.prod(shape[1:]))
        values = (random.standard_normal(shape) * spread).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    value, channels = "image", 3
    convolutions = [(64, 11, 4, True), (192, 5, 1, True), (384, 3, 1, False)]
    convolutions += [(256, 3, 1, False), (256, 3, 1, True)]
    for number, (count, kernel, stride, pooled) in enumerate(convolutions):
        weight = parameter(f"conv{number}", count, channels, kernel, kernel)
        inputs = [value, weight, parameter(f"bias{number}", count)]
        pad = 2 if kernel > 3 else 1
        pads, strides = [pad] * 4, [stride] * 2
        nodes.append(helper.make_node("Conv", inputs, [f"c{number}"], pads=pads, strides=strides))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        value, channels = f"r{number}", count
        if pooled:
            pooling = helper.make_node(
                "MaxPool", [value], [f"p{number}"], kernel_shape=[3, 3], strides=[2, 2]
            )
            nodes.append(pooling)
            value = f"p{number}"
    nodes.append(helper.make_node("Flatten", [value], ["flat"]))
    value, wide = "flat", 256 * 6 * 6
    for number, count in enumerate((2304, 2304, 1000)):
        inputs = [value, parameter(f"dense{number}", count, wide), parameter(f"add{number}", count)]
        nodes.append(helper.make_node("Gemm", inputs, [f"d{number}"], transB=1))
        nodes.append(helper.make_node("Relu", [f"d{number}"], [f"e{number}"]))
        value, wide = f"e{number}", count
    graph = helper.make_graph(
        nodes,
        "alexnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, 1000])],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


if __name__ == "__main__":
    main()
