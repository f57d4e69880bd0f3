"""Recognises TFLite models of known families: detectors with LiteRT's operator behind them."""

from __future__ import annotations

from edgekit.base.quoting import toml_string
from edgekit.models.ends.proposal import Proposal
from edgekit.models.model import ModelSource
from edgekit.models.tflite.file import read_tflite
from edgekit.models.tflite.operators import DETECTION


def propose(source: ModelSource) -> Proposal | None:
    """Return what the sections of a model may be; None for a model of no known family."""
    graph = read_tflite(source.path).main
    found = [operator for operator in graph.operators if operator.name == DETECTION]
    if len(found) != 1 or len(graph.inputs) != 1 or graph.outputs != found[0].outputs:
        return None
    shape = graph.tensors[graph.inputs[0]].shape
    if len(shape) != 4 or shape[3] not in (1, 3):
        return None
    names = ", ".join(toml_string(graph.tensors[index].name) for index in graph.outputs)
    color = () if shape[3] == 3 else ('color = "gray"',)
    return Proposal(
        "A detector like SSD MobileNet or EfficientDet-Lite",
        "TFLite_Detection_PostProcess stands behind it",
        ('layout = "NHWC"', *color, 'resize = "stretch"', "mean = 127.5", "std = 127.5"),
        (
            'task = "boxes"',
            'decode = "ssd"',
            f"outputs = [{names}]",
            "score = 0.5",
            '# labels = "names.txt"  # a name a line, without the background',
        ),
    )


def image_input(source: ModelSource) -> str:
    """Return the name of the only input of a recognised model."""
    graph = read_tflite(source.path).main
    return graph.tensors[graph.inputs[0]].name
