"""Operators whose output has a size that data decides: a buffer and a count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from support.c_builds import SANITIZED, built_tree, make
from support.deployed import run_deployed
from support.onnx_models import judged_by_onnxruntime
from support.own_operators import evaluator

import edgekit
from edgekit.backends.offloading import compile_model
from edgekit.models.model import import_model, open_model
from edgekit.models.onnx.lengths import Fixed, fix
from edgekit.profiles.board import load_board

RANDOM = np.random.default_rng(17)
Feeds = Mapping[str, np.ndarray]
Draw = Callable[[], Feeds]


def graph(ends: str, body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> main {ends} {{ {body} }}')


def sparse(*shape: int) -> np.ndarray:
    return (RANDOM.integers(0, 3, shape) * RANDOM.integers(0, 2, shape)).astype("float32")


def scored(batches: int, classes: int, boxes: int) -> dict[str, np.ndarray]:
    corners = RANDOM.random((batches, boxes, 2))
    sizes = RANDOM.random((batches, boxes, 2)) / 4 + 0.05
    order = np.concatenate([corners, corners + sizes], axis=2).astype("float32")
    scores = RANDOM.integers(0, 40, (batches, classes, boxes)) / 40  # some are equal
    return {"b": order, "s": scores.astype("float32")}


def boxes(*, most: int, attributes: str = "", thresholds: str = ", iou, least") -> onnx.ModelProto:
    return graph(
        f"(float[2,30,4] b, float[2,3,30] s) => (int64[N,3] y) <int64 most = {{{most}}}, "
        "float iou = {0.3}, float least = {0.4}>",
        f"y = NonMaxSuppression {attributes} (b, s, most{thresholds})",
    )


MODELS: Mapping[str, tuple[onnx.ModelProto, Draw]] = {
    "NonZero of a matrix": (
        graph("(float[5,7] x) => (int64[2,N] y)", "y = NonZero(x)"),
        lambda: {"x": sparse(5, 7)},
    ),
    "NonZero of nothing": (
        graph("(float[2,3,4] x) => (int64[3,N] y)", "y = NonZero(x)"),
        lambda: {"x": np.zeros((2, 3, 4), "float32")},
    ),
    "NonZero of bools, all true": (
        graph("(bool[9] x) => (int64[1,N] y)", "y = NonZero(x)"),
        lambda: {"x": np.ones(9, bool)},
    ),
    "Compress": (
        graph(
            "(float[3,6] x, bool[6] c) => (float[3,N] y, float[M] z)",
            "y = Compress <axis = 1> (x, c) z = Compress(x, c)",
        ),
        lambda: {"x": sparse(3, 6), "c": RANDOM.random(6) < 0.5},
    ),
    "Unique": (
        graph(
            "(float[20] x) => (float[N] a, int64[N] b, int64[20] c, int64[N] d, float[N] e,"
            " int64[N] f, int64[20] g, int64[N] h)",
            "a, b, c, d = Unique(x) e, f, g, h = Unique <sorted = 0> (x)",
        ),
        lambda: {"x": RANDOM.integers(-3, 4, 20).astype("float32")},
    ),
    "Unique of rows and columns": (
        graph(
            "(int64[8,3] x) => (int64[N,3] a, int64[N] b, int64[8] c, int64[N] d, int64[8,M] e)",
            "a, b, c, d = Unique <axis = 0> (x) e = Unique <axis = 1, sorted = 0> (x)",
        ),
        lambda: {"x": RANDOM.integers(0, 2, (8, 3))},
    ),
    "TopK with a computed k": (
        graph(
            "(float[3,9] x, int64[1] k) => (float[3,N] y, int64[3,N] z, float[M,9] w)",
            "y, z = TopK(x, k) w, v = TopK <axis = 0, largest = 0> (x, k)",
        ),
        lambda: {"x": sparse(3, 9), "k": RANDOM.integers(1, 4, 1)},
    ),
    "NonMaxSuppression": (boxes(most=5), lambda: scored(2, 3, 30)),
    "NonMaxSuppression of centers, all scores": (
        boxes(most=30, attributes="<center_point_box = 1>", thresholds=", iou"),
        lambda: scored(2, 3, 30),
    ),
    "NonMaxSuppression without thresholds": (
        boxes(most=2, thresholds=""),
        lambda: scored(2, 3, 30),
    ),
    "NonMaxSuppression with a computed limit": (
        graph(
            "(float[2,30,4] b, float[2,3,30] s, int64[1] k) => (int64[N,3] y)"
            " <float iou = {0.3}, float least = {0.2}>",
            "y = NonMaxSuppression(b, s, k, iou, least)",
        ),
        lambda: {**scored(2, 3, 30), "k": RANDOM.integers(0, 5, 1)},
    ),
}


def trimmed(fixed: Fixed, found: Sequence[Any]) -> list[np.ndarray]:
    """Return the model's outputs without what lies beyond the counts."""
    names = [item.name for item in fixed.proto.graph.output]
    values = dict(zip(names, found, strict=True))
    results = []
    for name in fixed.outputs:
        value = values[name]
        for one in fixed.outputs[name]:
            count = int(values[one.length])
            assert one.smallest <= count <= value.shape[one.dimension]
            value = np.take(value, np.arange(count), axis=one.dimension)
        results.append(value)
    return results


@pytest.mark.parametrize("name", MODELS)
def test_what_counts_is_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    proto, draw = MODELS[name]
    fixed = fix(proto, {})
    reference = evaluator(fixed.proto)
    onnx.save(fixed.proto, tmp_path / "model.onnx")
    model = import_model(open_model(tmp_path / "model.onnx"))
    made = compile_model(model, load_board("local").target, linked=True)

    for _ in range(4):
        feeds = draw()
        wanted = judged_by_onnxruntime(proto, feeds)
        for found in (
            reference.run(None, dict(feeds)),
            run_deployed(made, [feeds[spec.name] for spec in model.inputs]),
        ):
            for one, other in zip(trimmed(fixed, found), wanted, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [*MODELS])
def test_the_kernels_are_c_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto, draw = MODELS[name]
    fixed = fix(proto, {})
    feeds = draw()
    names = [item.name for item in fixed.proto.graph.output]
    wanted = dict(zip(names, evaluator(fixed.proto).run(None, dict(feeds)), strict=True))
    monkeypatch.setattr(
        "support.c_builds.oracle_for", lambda source: _Answers(wanted), raising=True
    )
    monkeypatch.setattr("support.c_builds.reference_inputs", lambda inputs, seed: dict(feeds))
    tree = built_tree(fixed.proto, tmp_path / "tree")

    said = make(tree.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")

    assert said.returncode == 0, said.stdout + said.stderr


def test_a_bundle_gives_what_counts_and_the_c_of_a_microcontroller_tests_it(
    tmp_path: Path,
) -> None:
    proto, draw = MODELS["Compress"]
    onnx.save(proto, tmp_path / "model.onnx")
    feeds = dict(draw())
    ws = edgekit.Workspace(tmp_path)

    here = ws.build(tmp_path / "model.onnx", board="local", out=tmp_path / "local")
    found = ws.run(here, feeds)
    ws.verify(here)
    small = ws.build(tmp_path / "model.onnx", board="mps2-an386", out=tmp_path / "small")
    said = make(small.path / "c", "test", f"CFLAGS={' '.join(SANITIZED)}")

    for one, wanted in zip(found.values(), judged_by_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_array_equal(one, wanted)
    assert said.returncode == 0, said.stdout + said.stderr


class _Answers:
    def __init__(self, answers: Mapping[str, np.ndarray]) -> None:
        self.run = lambda feeds: answers
