"""Models of every format take pictures and return what they mean: a deployment on this machine
gives what numpy makes of the outputs of LiteRT and PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tflite_models import Op, T, constant, run_both, tflite_bytes

from edgekit.models.ends import Ends
from edgekit.models.ends.postprocess import Classes
from edgekit.models.model import ModelSource, import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.models.preprocess import Preprocess

RANDOM = np.random.default_rng(9)
SIDE, CLASSES = 8, 6


def write_classifier(path: Path, *, float_ends: bool) -> Path:
    """An int8 classifier; with float ends the file quantises and dequantises itself."""
    steps: dict[str, Any] = {"scale": 1 / 64, "zero": -3}
    weights = RANDOM.integers(-127, 128, (CLASSES, SIDE * SIDE * 3)).astype(np.int8)
    shape = (1, SIDE, SIDE, 3)
    tensors = [
        T("x", shape, "int8", **steps),
        constant("flat", np.array([1, SIDE * SIDE * 3], np.int32)),
        T("line", (1, SIDE * SIDE * 3), "int8", **steps),
        T("w", weights.shape, "int8", weights, scale=1 / 512),
        constant("b", RANDOM.integers(-99, 99, CLASSES).astype(np.int32), scale=1 / 64 / 512),
        T("s", (1, CLASSES), "int8", scale=0.1, zero=5),
    ]
    operators = [
        Op("RESHAPE", ("x", "flat"), ("line",)),
        Op("FULLY_CONNECTED", ("line", "w", "b"), ("s",), {"table": "FullyConnectedOptions"}),
    ]
    ends = ("x", "s")
    if float_ends:
        tensors += [T("image", shape), T("scores", (1, CLASSES))]
        operators = [
            Op("QUANTIZE", ("image",), ("x",)),
            *operators,
            Op("DEQUANTIZE", ("s",), ("scores",)),
        ]
        ends = ("image", "scores")
    path.write_bytes(tflite_bytes(tensors, operators, ends[:1], ends[1:]))
    return path


def scores_by_litert(path: Path, values: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(str(path), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    scale, zero = given["quantization"]
    if scale:
        values = np.clip(np.rint(values / scale) + zero, -128, 127)
    interpreter.set_tensor(given["index"], values.astype(given["dtype"])[None])
    interpreter.invoke()
    found = interpreter.get_tensor(made["index"])[0].astype(np.float64)
    scale, zero = made["quantization"]
    return (found - zero) * scale if scale else found


def best(scores: np.ndarray, count: int) -> tuple[list[int], np.ndarray]:
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    order = np.argsort(-shares, kind="stable")[:count]
    return order.tolist(), shares[order]


def picture() -> np.ndarray:
    return RANDOM.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


def check(source: ModelSource, expected: np.ndarray, pixels: np.ndarray, name: str) -> None:
    """The deployment and the oracle find the classes with the best of the expected scores."""
    classes, shares = best(expected, 3)
    for found in run_both(source, {name: pixels}):
        assert found["classes"].tolist() == classes
        np.testing.assert_allclose(found["scores"], shares, rtol=1e-4)


@pytest.mark.parametrize("float_ends", [False, True])
def test_a_tflite_classifier_takes_pictures_and_names_classes(
    float_ends: bool, tmp_path: Path
) -> None:
    path = write_classifier(tmp_path / "m.tflite", float_ends=float_ends)
    name = "image" if float_ends else "x"
    preprocess = Preprocess("NHWC", "bgr", mean=(127.5,), std=(127.5,))
    source = open_model(path, ends=Ends({name: preprocess}, Classes("classes", top=3)))
    pixels = picture()

    expected = scores_by_litert(path, (pixels[:, :, ::-1] - 127.5) / 127.5)

    check(source, expected, pixels, name)
    (given,) = import_model(source).inputs
    assert (given.dtype, given.shape) == ("uint8", (SIDE, SIDE, 3))


def test_outputs_that_a_step_decides_have_leeway(tmp_path: Path) -> None:
    """LiteRT's kernels may differ by a step, and then other classes are the best."""
    path = write_classifier(tmp_path / "m.tflite", float_ends=False)
    ends = Ends(
        {"x": Preprocess("NHWC", mean=(127.5,), std=(127.5,))}, Classes("classes", top=CLASSES)
    )
    oracle = oracle_for(open_model(path, ends=ends))
    given = {"x": picture()}
    outputs = oracle.run(given)

    found = oracle.leeways(given, outputs)

    assert found["scores"].allowed > 0
    assert oracle.name == "LiteRT"


@pytest.mark.needs("torch")
def test_a_pytorch_program_takes_pictures_and_names_classes(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(5)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(CLASSES),
    ).eval()
    example = (torch.zeros(1, 3, SIDE, SIDE),)
    module(*example)
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(module, example), path)
    (name,) = (spec.name for spec in import_model(open_model(path)).inputs)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    ends = Ends(
        {name: Preprocess("NCHW", mean=mean, std=std, scale=1 / 255)}, Classes("classes", top=3)
    )
    pixels = picture()

    values = ((pixels / 255 - mean) / std).transpose(2, 0, 1)[None].astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(values)).numpy()[0]

    check(open_model(path, ends=ends), expected, pixels, name)
