"""ncnn: the layers of a region become one `ncnn::Net`.

layout.py says how ncnn holds a tensor, rules/ which operators it takes as which layers, net.py
joins those to a graph, and codegen.py writes the graph in the form that ncnn's loader reads.
vulkan.py says which layers can run on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import Backend, GeneratedRegion, Option, Options, Region, Rule
from edgekit.backends.from_recipe import INT8, NON_FINITE, THREADS, FromRecipe

if TYPE_CHECKING:
    from edgekit.cross.sources import Recipe
    from edgekit.profiles.board import Board


class Ncnn(FromRecipe):
    name = "ncnn"
    title = "ncnn"
    architectures = ("aarch64", "x86_64")
    before_folding = False
    include = Path(__file__).parent / "include"
    options: Mapping[str, Option] = {
        "threads": THREADS,
        "weights": Option("fp32", "how weights are stored", ("fp32", "fp16")),
        "int8": INT8,
        "fp16_storage": Option(False, "layers hand each other float16"),
        "fp16_arithmetic": Option(False, "layers compute in float16, where fp16_storage is on"),
        "bf16_storage": Option(False, "layers hand each other bfloat16, on any CPU"),
        "packing": Option(True, "channels are interleaved for vector instructions"),
        "winograd": Option(True, "3x3 convolutions by Winograd's method: faster, more memory"),
        "sgemm": Option(True, "convolutions as matrix products: faster, more memory"),
        "light_mode": Option(True, "what is no longer needed is freed during a call"),
        "vulkan": Option(False, "regions run on the GPU through Vulkan, else on the CPU"),
        "software_vulkan": Option(False, "a Vulkan driver that computes on the CPU will do"),
        "non_finite": NON_FINITE,
    }

    def variant(self, options: Options) -> Backend:
        return WITH_VULKAN if options["vulkan"] else BACKEND

    def advice(self, board: Board) -> str:
        from edgekit.backends.ncnn.published_gpus import vulkan_advice

        return vulkan_advice(board.name)

    def rules(self, options: Options) -> Sequence[Rule]:
        from edgekit.backends.ncnn.rules import all_rules

        return all_rules(int8=bool(options["int8"]))

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        from edgekit.backends.ncnn.codegen import generate

        return generate(region, options)


class NcnnWithVulkan(Ncnn):
    @property
    def recipe(self) -> Recipe:
        return super().recipe.as_variant("vulkan")


BACKEND = Ncnn()
WITH_VULKAN = NcnnWithVulkan()
