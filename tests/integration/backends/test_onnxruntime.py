"""What edgekit can't compile, run in onnxruntime's library beside the program.

onnxruntime is the oracle of ONNX models, so that the numbers are compared with others: those of
scikit-learn and of numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.deployed import run_deployed
from support.examples import first_of
from support.needs import needs
from support.offloaded import selection_for

from edgekit.backends.offloading import OffloadedModel, compile_model
from edgekit.base.errors import DeviceError, UnsupportedModelError
from edgekit.models.leftovers import Leftovers
from edgekit.models.model import Model, import_model, open_model
from edgekit.profiles.board import load_board

pytestmark = needs("onnxruntime")

RANDOM = np.random.default_rng(0)
TAKEN = Leftovers("onnxruntime", "taken")
ML = "ai.onnx.ml"
VALUE = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64}


def node(operator: str, inputs: str, outputs: str, domain: str = "", **set_: Any) -> onnx.NodeProto:
    made = outputs.split()
    return helper.make_node(
        operator, inputs.split(), made, name=f"/{made[0]}", domain=domain, **set_
    )


def write(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, np.ndarray],
    outputs: Mapping[str, int],
    weights: Mapping[str, np.ndarray] | None = None,
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, VALUE[v.dtype], v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    sets = {"": 17, ML: 3, "com.microsoft": 1}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*item) for item in sets.items()], ir_version=8
    )
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


@dataclass(frozen=True)
class Found:
    model: Model
    compiled: OffloadedModel
    outputs: list[np.ndarray]

    @property
    def parts(self) -> list[list[str]]:
        """The operators of each region."""
        return [list(region.operators) for region in self.compiled.regions]

    @property
    def native(self) -> set[str]:
        return {d.operator for d in self.compiled.decisions if d.backend is None}


def imported(path: Path) -> Model:
    return import_model(replace(open_model(path), leftovers=TAKEN))


def run(path: Path, feeds: Mapping[str, np.ndarray]) -> Found:
    model = imported(path)
    selection = selection_for("onnxruntime")
    target = load_board("local").target
    compiled = compile_model(model, target, offload=selection, linked=True)
    arguments = [feeds[spec.name] for spec in model.inputs]
    outputs = run_deployed(compiled, arguments, backends=selection.backends)
    return Found(model, compiled, outputs)


def test_an_operator_of_a_vendor_stands_between_two_native_parts(tmp_path: Path) -> None:
    image = RANDOM.standard_normal((1, 3, 6, 6)).astype("float32")
    weights = {
        "first": RANDOM.standard_normal((4, 3, 1, 1)).astype("float32"),
        "last": RANDOM.standard_normal((2, 4, 1, 1)).astype("float32"),
    }
    nodes = [
        node("Conv", "image first", "before"),
        node("Inverse", "before", "inverse", "com.microsoft"),
        node("Conv", "inverse last", "after"),
    ]
    path = write(tmp_path, nodes, {"image": image}, {"after": TensorProto.FLOAT}, weights)

    found = run(path, {"image": image})

    def conv(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.einsum("nchw,oc->nohw", data, weight[:, :, 0, 0].astype("float64"))

    expected = conv(np.linalg.inv(conv(image, weights["first"])), weights["last"])
    np.testing.assert_allclose(found.outputs[0], expected, rtol=2e-3, atol=1e-3)
    assert found.parts == [["com.microsoft.Inverse"]]
    assert found.native == {"nn.conv2d"}
    (why,) = [d.reason for d in found.compiled.decisions if d.backend]
    assert why.startswith("edgekit has no way to compile this operator; its region is ")
    assert why.endswith(" B of ONNX")


def test_text_stays_inside_a_region(tmp_path: Path) -> None:
    """Numbers become words, the words are looked up, and native code reads what is found."""
    keys = np.array([[3, 1, 2], [2, 2, 1]])
    words = [b"one", b"two", b"three"]
    nodes = [
        node("LabelEncoder", "keys", "words", ML, keys_int64s=[1, 2, 3], values_strings=words),
        node("Transpose", "words", "turned"),
        node(
            *("LabelEncoder", "turned", "prices", ML),
            keys_strings=words,
            values_floats=[0.5, 0.25, 4.0],
        ),
        node("Mul", "prices two", "doubled"),
    ]
    weights = {"two": np.float32([2.0])}
    path = write(tmp_path, nodes, {"keys": keys}, {"doubled": TensorProto.FLOAT}, weights)

    found = run(path, {"keys": keys})

    expected = np.float32([[8.0, 0.5], [1.0, 0.5], [0.5, 1.0]]) * [[1, 1], [1, 1], [1, 1]]
    expected = np.float32([[0.5, 0.25, 4.0][key - 1] for key in keys.T.reshape(-1)]) * 2
    np.testing.assert_array_equal(found.outputs[0], expected.reshape(3, 2))
    assert found.parts == [["ai.onnx.ml.LabelEncoder", "Transpose", "ai.onnx.ml.LabelEncoder"]]
    assert found.native == {"multiply"}
    assert "it reads 'words' of '/words', which is text" in {
        d.reason.partition(";")[0] for d in found.compiled.decisions
    }


def test_a_size_that_depends_on_the_data_needs_no_region(tmp_path: Path) -> None:
    values = np.float32([[0, 2, 0], [3, 0, 5]])
    nodes = [
        node("NonZero", "x", "places"),
        node("GatherND", "x turned", "found"),
        node("Transpose", "places", "turned"),
        node("ReduceSum", "found", "sum", keepdims=1),
        node("Mul", "x sum", "scaled"),
    ]
    path = write(tmp_path, nodes, {"x": values}, {"scaled": TensorProto.FLOAT})

    found = run(path, {"x": values})

    np.testing.assert_allclose(found.outputs[0], values * 10)
    assert found.parts == []


def test_what_stands_between_nodes_of_one_region_is_in_it(tmp_path: Path) -> None:
    """Text that can't leave a region leads past a product, which would else need the region's first
    result before its last."""
    x = np.array([[1, 2]])
    nodes = [
        node("LabelEncoder", "x", "words", ML, keys_int64s=[1, 2], values_strings=["a", "b"]),
        node("LabelEncoder", "words", "codes", ML, keys_strings=["a", "b"], values_int64s=[0, 1]),
        node("Mul", "codes three", "native"),
        node("Shape", "words", "extent"),
        node("ConstantOfShape", "extent", "zeros"),
        node("Cast", "native", "text", to=TensorProto.STRING),
        node("Where", "true words text", "chosen"),
        node(
            *("LabelEncoder", "chosen", "made", ML),
            keys_strings=["a", "b"],
            values_floats=[7.0, 9.0],
        ),
        node("Add", "made zeros", "out"),
    ]
    weights = {"three": np.array([3]), "true": np.array([[True, True]])}
    path = write(tmp_path, nodes, {"x": x}, {"out": TensorProto.FLOAT}, weights)

    found = run(path, {"x": x})

    np.testing.assert_array_equal(found.outputs[0], np.float32([[7, 9]]))
    (part,) = found.parts
    assert "Mul" in part
    assert "it stands between nodes that can't be compiled" in {
        d.reason.partition(";")[0] for d in found.compiled.decisions
    }


def test_another_shape_than_the_build_saw_is_an_error_and_no_wrong_number(tmp_path: Path) -> None:
    """A branch that no sample of the build takes returns a tensor of another shape."""
    x = np.float32([1, 2, 3])

    def branch(name: str, size: int) -> onnx.GraphProto:
        constant = numpy_helper.from_array(np.full(size, size, "float32"))
        made = helper.make_node("Constant", [], [name], value=constant)
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([made], name, [], [info])

    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum limit", "large"),
        node("If", "large", "y", then_branch=branch("five", 5), else_branch=branch("two", 2)),
    ]
    weights = {"limit": np.float32(1e6)}
    path = write(tmp_path, nodes, {"x": x}, {"y": TensorProto.FLOAT}, weights)

    assert run(path, {"x": x}).outputs[0].tolist() == [2, 2]
    with pytest.raises(DeviceError, match="shape"):
        run(path, {"x": x * 1e6})


@pytest.mark.parametrize(
    ("nodes", "output", "said"),
    [
        (
            [node("LabelEncoder", "x", "y", ML, keys_int64s=[1], values_strings=["a"])],
            TensorProto.STRING,
            "output 'y' is text",
        ),
        (
            [node("RandomUniformLike", "x", "y", dtype=1)],
            TensorProto.FLOAT,
            "it draws random numbers, so its output can't be verified",
        ),
        (
            [node("Nonsense", "x", "y", "com.microsoft")],
            TensorProto.FLOAT,
            "edgekit has no way to compile this operator",
        ),
    ],
)
def test_what_onnxruntime_can_not_take_either_is_refused(
    tmp_path: Path, nodes: list[onnx.NodeProto], output: int, said: str
) -> None:
    path = write(tmp_path, nodes, {"x": np.array([1, 0, 2])}, {"y": output})

    with pytest.raises(UnsupportedModelError) as refused:
        imported(path)

    assert said in refused.value.message


def test_only_where_it_helps_a_refusal_names_the_backend(tmp_path: Path) -> None:
    advised = Leftovers("onnxruntime", "advised")
    x = np.zeros((2, 2), "float32")
    helped = write(tmp_path, [node("Inverse", "x", "y", "com.microsoft")], {"x": x}, {"y": 1})
    with pytest.raises(UnsupportedModelError) as refused:
        import_model(replace(open_model(helped), leftovers=advised))
    assert (refused.value.hint or "").startswith("--offload onnxruntime runs that part as it is")
    with pytest.raises(UnsupportedModelError) as refused:
        import_model(open_model(helped))
    assert "--offload" not in (refused.value.hint or "")

    lost = write(tmp_path, [node("RandomUniformLike", "x", "y", dtype=1)], {"x": x}, {"y": 1})
    with pytest.raises(UnsupportedModelError) as refused:
        import_model(replace(open_model(lost), leftovers=advised))
    assert "--offload" not in (refused.value.hint or "")


def test_a_part_that_reads_only_constants_is_computed_by_the_build(tmp_path: Path) -> None:
    x = np.float32([[1, 2], [3, 4]])
    nodes = [
        node("Inverse", "weight", "inverse", "com.microsoft"),
        node("MatMul", "x inverse", "y"),
    ]
    path = write(tmp_path, nodes, {"x": x}, {"y": 1}, {"weight": np.float32([[2, 0], [0, 4]])})

    found = run(path, {"x": x})

    np.testing.assert_allclose(found.outputs[0], x @ np.float32([[0.5, 0], [0, 0.25]]))
    assert found.parts == []


def test_a_bag_of_tokens_is_weighed(tmp_path: Path) -> None:
    """TF-IDF of numbered tokens: pairs and single tokens, weighed, then a linear classifier."""
    tokens = np.array([[3, 1, 3, 1, 2]])
    nodes = [
        node(
            *("TfIdfVectorizer", "tokens", "bag"),
            mode="TFIDF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=0,
            ngram_counts=[0, 3],
            ngram_indexes=[0, 1, 2, 3, 4],
            pool_int64s=[1, 2, 3, 3, 1, 1, 2],
            weights=[1.0, 2.0, 0.5, 4.0, 8.0],
        ),
        node("MatMul", "bag weight", "score"),
    ]
    weight = RANDOM.standard_normal((5, 2)).astype("float32")
    path = write(tmp_path, nodes, {"tokens": tokens}, {"score": 1}, {"weight": weight})

    found = run(path, {"tokens": tokens})

    counts = np.float32([[2 * 1.0, 1 * 2.0, 2 * 0.5, 2 * 4.0, 1 * 8.0]])
    np.testing.assert_allclose(found.outputs[0], counts @ weight, rtol=1e-6)
    assert found.parts == [["TfIdfVectorizer"]]
    assert found.native == {"matmul"}


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.preprocessing import StandardScaler

    return [StandardScaler(), RandomForestClassifier(12, random_state=0)], "classes"


def _boosting() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.preprocessing import MinMaxScaler

    return [MinMaxScaler(), GradientBoostingRegressor(random_state=0)], "numbers"


def _support_vectors() -> Any:
    from sklearn.preprocessing import Normalizer
    from sklearn.svm import SVR

    return [Normalizer(), SVR()], "numbers"


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    return [OneHotEncoder(handle_unknown="ignore"), LogisticRegression()], "classes"


def _neighbours() -> Any:
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.preprocessing import PolynomialFeatures

    return [PolynomialFeatures(), KNeighborsRegressor(3)], "numbers"


PIPELINES: Mapping[str, Callable[[], Any]] = {
    "forest": _forest,
    "boosting": _boosting,
    "support vectors": _support_vectors,
    "logistic": _logistic,
    "neighbours": _neighbours,
}


@needs("scikit-learn")
@pytest.mark.parametrize("name", first_of(*PIPELINES))
def test_a_pipeline_of_scikit_learn_predicts_what_it_predicts_there(
    tmp_path: Path, name: str
) -> None:
    from skl2onnx import to_onnx
    from sklearn.pipeline import make_pipeline

    steps, kind = PIPELINES[name]()
    # No number stands on a border of a tree, where scaling in float32 would decide.
    data = RANDOM.standard_normal((120, 4)).astype("float32")
    data = data.round() if name == "logistic" else data
    total = data @ np.float32([1, -2, 3, 0.5])
    pipeline = make_pipeline(*steps)
    pipeline.fit(data, np.digitize(total, [-1, 1]) if kind == "classes" else total)
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(pipeline, data[:7], target_opset=17).SerializeToString())
    rows = data[3:10]
    source = replace(open_model(path, {"X": (7, 4)}), leftovers=TAKEN)
    model = import_model(source)
    selection = selection_for("onnxruntime")
    compiled = compile_model(model, load_board("local").target, offload=selection, linked=True)

    outputs = run_deployed(compiled, [rows], backends=selection.backends)

    if kind == "classes":
        np.testing.assert_array_equal(outputs[0], pipeline.predict(rows))
        np.testing.assert_allclose(outputs[1], pipeline.predict_proba(rows), atol=1e-5)
        assert [spec.name for spec in model.outputs] == ["output_label", "output_probability"]
        assert any("a column for each class (0, 1, 2)" in repair for repair in model.repairs)
    else:
        np.testing.assert_allclose(outputs[0][:, 0], pipeline.predict(rows), rtol=1e-4, atol=1e-4)
