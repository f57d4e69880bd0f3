"""Regions for TensorRT without TensorRT: their ONNX in onnxruntime, TVM for the rest of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.backends.base import Options, Region
from edgekit.backends.tensorrt.graph import onnx_of
from edgekit.model import Model
from support.onnx_models import judged_by_onnxruntime
from support.region_lab import Offloaded, run_offloaded, selection_for


class OnnxRegion:
    def __init__(self, region: Region, options: Options) -> None:
        self.region = region
        self.model = onnx_of(region)

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        feeds = {f"input{place}": value for place, value in enumerate(inputs)}
        return judged_by_onnxruntime(self.model, feeds)


def offloaded(model: Model, inputs: Sequence[np.ndarray], **options: object) -> Offloaded:
    """The model with everything in ONNX that TensorRT's rules take, and TVM for the rest."""
    return run_offloaded(model, inputs, selection_for("tensorrt", **options), OnnxRegion)
