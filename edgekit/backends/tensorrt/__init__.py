"""NVIDIA TensorRT: a region becomes an ONNX model, and on the device an engine.

rules/ has the rules, graph.py writes the ONNX. runner/ is a library next to the model's, which
include/edgekit_tensorrt.h loads at a region's first call: it builds an engine on the device and
caches it. It is compiled where NVIDIA's headers are, on the host or on the device.
docs/tensorrt.md says what of this has been run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import GeneratedRegion, Option, Options, Region, Runner
from edgekit.backends.tensorrt.places import DEVICE_BUILD

if TYPE_CHECKING:
    from edgekit.backends.base import Rule
    from edgekit.base.events import Events
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain


class TensorRt:
    name = "tensorrt"
    title = "TensorRT"
    version = "2"
    """The version of the rules and the runner; the device brings TensorRT itself, 8.5 to 11."""
    architectures = ("aarch64", "x86_64")
    before_folding = False
    include = Path(__file__).parent / "include"
    options: Mapping[str, Option] = {
        "precision": Option(
            "fp32",
            "what TensorRT may compute in; int8 where the model is quantised, and fp16 elsewhere",
            ("fp32", "tf32", "fp16", "int8"),
        ),
        "workspace_mb": Option(256, "the most MiB that a layer may use besides its tensors"),
        "dla_core": Option(-1, "the deep learning accelerator to run on; -1 is the GPU"),
        "builder_level": Option(
            3, "how long the builder searches, from TensorRT 8.6 on", (0, 1, 2, 3, 4, 5)
        ),
    }
    device_build = DEVICE_BUILD

    def rules(self, options: Options) -> Sequence[Rule]:
        from edgekit.backends.tensorrt.rules import all_rules

        return all_rules(int8=options["precision"] == "int8")

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        from edgekit.backends.tensorrt.codegen import generate_region

        return generate_region(region, options)

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        from edgekit.backends.tensorrt.headers import find_headers

        headers = find_headers(board, toolchain)
        return headers.identity if headers else "tensorrt of the device"

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary:
        from edgekit.backends.tensorrt.headers import library_of

        return library_of(board, toolchain)

    def runner(self, board: Board, toolchain: Toolchain) -> Runner:
        from edgekit.backends.tensorrt.headers import find_headers
        from edgekit.backends.tensorrt.source import runner_source

        headers = find_headers(board, toolchain)
        folders, version = (headers.folders, headers.version) if headers else ((), "")
        return Runner(runner_source(), folders, version)


BACKEND = TensorRt()
