"""A program for a range of sizes has kernels for several, and its weights once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import edgekit
from edgekit.base.shapes import read_shape
from edgekit.bundle.folder import Bundle
from edgekit.compiler.loops import controls_in
from edgekit.compiler.macs import macs_of_call
from edgekit.models.model import Model, import_model, open_model

LARGEST, WIDTH, WORDS = 128, 64, 100
SIZES = {"ids": f"1x(1..{LARGEST})"}
TEXT = f"""<ir_version: 9, opset_import: ["" : 18]>
attention (int64[1,n] ids) => (float[1,n,{WIDTH}] each, float[1,{WIDTH}] all) {{
    words = Gather(table, ids)
    length = Shape<start=1, end=2>(ids)
    zero = Constant<value_ints=[0]>()
    places = Slice(positions, zero, length, zero)
    x = Add(words, places)
    q = MatMul(x, first)
    k = Transpose<perm=[0, 2, 1]>(q)
    scores = MatMul(q, k)
    shares = Softmax<axis=-1>(scores)
    seen = MatMul(shares, x)
    each = MatMul(seen, second)
    one = Constant<value_ints=[1]>()
    all = ReduceMean<keepdims=0>(each, one)
}}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = parser.parse_model(TEXT)
    random = np.random.default_rng(3)
    shapes = {
        "table": (WORDS, WIDTH),
        "positions": (LARGEST, WIDTH),
        "first": (WIDTH, WIDTH),
        "second": (WIDTH, WIDTH),
    }
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32) / 8
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("buckets") / "attention.onnx"
    onnx.save(model, path)
    return path


def built(path: Path, sizes: dict[str, str], name: str) -> Bundle:
    return edgekit.Workspace(path.parent).build(path, name, board="local", shapes=sizes)


@pytest.fixture(scope="module")
def bundle(path: Path) -> Bundle:
    return built(path, SIZES, "sized")


def test_every_size_gives_what_the_model_does(path: Path, bundle: Bundle) -> None:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(4)
    with edgekit.Workspace(path.parent).opened(bundle, device="local") as opened:
        # Large, small, large: what a run leaves in memory reaches no other.
        for size in (LARGEST, 1, 8, 9, 100, 31, 32, 33, LARGEST, 2):
            ids = random.integers(0, WORDS, (1, size))
            found = opened.run({"ids": ids})
            for name, want in zip(("each", "all"), session.run(None, {"ids": ids}), strict=True):
                np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=size)


def test_weights_are_in_the_library_once(path: Path, bundle: Bundle) -> None:
    of_one_size = built(path, {"ids": f"1x{LARGEST}"}, "fixed")
    weights = (WORDS + LARGEST + 2 * WIDTH) * WIDTH * 4
    more = bundle.library.stat().st_size - of_one_size.library.stat().st_size
    assert of_one_size.library.stat().st_size > weights
    assert more < weights // 2  # code of five graphs


def test_verification_reaches_each_graph(bundle: Bundle) -> None:
    names = [vector.name for vector in bundle.manifest.vectors]
    assert [name for name in names if name.startswith("size-")] == [
        *("size-1", "size-96", "size-48", "size-24", "size-12", "size-6")
    ]


def modelled(path: Path, shape: str) -> Model:
    return import_model(open_model(path, {"ids": read_shape(shape)}))


def test_each_graph_does_the_work_of_its_size(path: Path) -> None:
    model = modelled(path, SIZES["ids"])
    assert model.by_size is not None
    module = model.by_size()
    found, rest = [], module["main"]
    while rules := [rule for _, rule in controls_in(rest)]:
        first, rest = (module[body] for body in rules[0].bodies)
        found.append(work_of(first))
    found.append(work_of(rest))

    def expected(n: int) -> int:
        return 2 * n * WIDTH * WIDTH + 2 * n * n * WIDTH

    assert found == [expected(n) for n in (128, 64, 32, 16, 8)]


def work_of(function: object) -> int:
    bindings = [one for block in function.body.blocks for one in block.bindings]
    return sum(macs_of_call(one.value) for one in bindings if hasattr(one.value, "args"))


def test_a_small_range_has_one_graph(path: Path) -> None:
    assert modelled(path, "1x(1..14)").by_size is None
