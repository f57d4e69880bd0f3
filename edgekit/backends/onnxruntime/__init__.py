"""ONNX Runtime: runs the parts of an ONNX model that edgekit can't compile as they are.

It has no rules for operators of Relax: the importer leaves its regions (models/onnx/leftovers.py).
include/edgekit_onnxruntime.h makes one session for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.backends.base import GeneratedRegion, Option, Options, Region
from edgekit.backends.from_recipe import THREADS, FromRecipe
from edgekit.backends.source import region_source
from edgekit.base.quoting import c_string

if TYPE_CHECKING:
    from edgekit.backends.base import Rule, Tensor


class OnnxRuntime(FromRecipe):
    name = "onnxruntime"
    title = "ONNX Runtime"
    architectures = ("aarch64", "x86_64")
    before_folding = False
    include = Path(__file__).parent / "include"
    options: Mapping[str, Option] = {"threads": THREADS}

    def rules(self, options: Options) -> Sequence[Rule]:
        return ()

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        (step,) = region.steps
        blobs = {"model": step.layer.weights["model"].tobytes()}
        source = f"""\
{_table("input_names", region.inputs)}
{_table("output_names", region.outputs)}

class Region : public edgekit::onnxruntime::Session {{
 public:
  Region() : Session(model, {int(options["threads"])}, input_names, output_names) {{}}
}};
"""
        headers = ("edgekit_onnxruntime.h",)
        whole = region_source(region, headers, source, "Region", blobs)
        return GeneratedRegion(region.symbol, region.backend, whole, blobs)


def _table(name: str, tensors: Sequence[Tensor]) -> str:
    texts = ", ".join(c_string(tensor.name) for tensor in tensors)
    return f"const std::vector<const char*> {name}{{{texts}}};"


BACKEND = OnnxRuntime()
