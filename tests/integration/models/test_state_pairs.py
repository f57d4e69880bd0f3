"""Outputs that the user pairs with inputs: the runtime carries their values between calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs.c_library import run_tree
from onnx import helper
from support.c_builds import built_tree
from support.onnx_models import onnx_model

import edgekit
from edgekit.base.errors import ModelError
from edgekit.models.model import Adaptation, import_model, open_model

RANDOM = np.random.default_rng(9)
CARRIED = Adaptation(state=(("cn", "c"), ("hn", "h")))


def streaming(folder: Path) -> Path:
    """One step of an LSTM whose state goes in and comes out, and a projection of its result."""
    weights = {
        "W": RANDOM.standard_normal((1, 20, 3)).astype("float32"),
        "R": RANDOM.standard_normal((1, 20, 5)).astype("float32"),
        "P": RANDOM.standard_normal((5, 2)).astype("float32"),
        "axis": np.array([0], "int64"),
    }
    nodes = [
        helper.make_node(
            "LSTM", ["x", "W", "R", "", "", "h", "c"], ["", "hn", "cn"], hidden_size=5
        ),
        helper.make_node("Squeeze", ["hn", "axis"], ["s"]),
        helper.make_node("MatMul", ["s", "P"], ["y"]),
    ]
    shapes = {"x": [1, 1, 3], "h": [1, 1, 5], "c": [1, 1, 5]}
    model = onnx_model(nodes, shapes, ["y", "hn", "cn"], weights)
    onnx.save(model, folder / "tagger.onnx")
    return folder / "tagger.onnx"


def samples(folder: Path, count: int) -> list[np.ndarray]:
    made = [RANDOM.standard_normal((1, 1, 3)).astype("float32") for _ in range(count)]
    for number, sample in enumerate(made):
        np.save(folder / f"{number}.npy", sample)
    return made


def by_onnxruntime(model: Path, given: list[np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.read_bytes())
    state = {name: np.zeros((1, 1, 5), "float32") for name in "hc"}
    results = []
    for x in given:
        y, state["h"], state["c"] = session.run(["y", "hn", "cn"], {"x": x, **state})
        results.append(y)
    return results


def test_a_run_carries_paired_outputs_and_verify_checks_several_calls(tmp_path: Path) -> None:
    model = streaming(tmp_path)
    (tmp_path / "given").mkdir()
    given = samples(tmp_path / "given", 4)
    ws = edgekit.Workspace(tmp_path)
    bundle = ws.build(model, board="local", state={"hn": "h", "cn": "c"})
    states = [entry.spec.state for entry in bundle.manifest.inputs]
    assert states == [None, "hn", "cn"]
    vectors = {vector.name: vector for vector in bundle.vectors()}
    assert not vectors["random"].inputs["h"].any()
    np.testing.assert_array_equal(vectors["call-2"].outputs["cn"], vectors["call-3"].inputs["c"])
    assert ws.verify(bundle.path).passed

    ws.run_report(bundle.path, [str(tmp_path / "given")], out=tmp_path / "out")
    found = [np.load(folder / "y.npy") for folder in sorted((tmp_path / "out").iterdir())]
    np.testing.assert_allclose(found, by_onnxruntime(model, given), rtol=1e-5, atol=1e-6)
    ws.run_report(bundle.path, [str(tmp_path / "given")], out=tmp_path / "fresh", keep_state=False)
    alone = [np.load(folder / "y.npy") for folder in sorted((tmp_path / "fresh").iterdir())]
    fresh = [by_onnxruntime(model, [sample])[0] for sample in given]
    np.testing.assert_allclose(alone, fresh, rtol=1e-5, atol=1e-6)
    # The pairs are those of the manifest: the model is found by its hash.
    assert ws.verify(bundle.path, [str(tmp_path / "given")], model=model).passed


def test_the_project_file_names_the_pairs(tmp_path: Path) -> None:
    model = streaming(tmp_path)
    text = 'schema = 1\nmodel = "tagger.onnx"\nboard = "local"\n[state]\nhn = "h"\ncn = "c"\n'
    (tmp_path / "edgekit.toml").write_text(text)
    bundle = edgekit.Workspace(tmp_path).build(model)
    assert [entry.spec.state for entry in bundle.manifest.inputs] == [None, "hn", "cn"]


def test_c_takes_the_state_of_the_call_before(tmp_path: Path) -> None:
    model = streaming(tmp_path)
    built = built_tree(model, tmp_path / "c")
    given = [RANDOM.standard_normal((1, 1, 3)).astype("float32") for _ in range(3)]
    state = {name: np.zeros((1, 1, 5), "float32") for name in "hc"}
    for x, wanted in zip(given, by_onnxruntime(model, given), strict=True):
        found = run_tree(built.compiled.plan, built.folder, {"x": x, **state})
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)
        state = {"h": found["hn"], "c": found["cn"]}


@pytest.mark.parametrize(
    ("pair", "message", "hint"),
    [
        (("hn", "k"), "has no input 'k'", "it has x, h, c"),
        (("zn", "h"), "has no output 'zn'", "it has y, hn, cn"),
        (("h", "hn"), "names the input first", "hn=h"),
        (("y", "h"), r"float32\[1, 2\], and the input float32\[1, 1, 5\]", "one shape"),
    ],
)
def test_a_pair_that_does_not_fit_is_refused(
    pair: tuple[str, str], message: str, hint: str, tmp_path: Path
) -> None:
    source = open_model(streaming(tmp_path), adaptation=Adaptation(state=(pair,)))
    with pytest.raises(ModelError, match=message) as caught:
        import_model(source)
    assert hint in (caught.value.hint or "").replace('{"', "").replace('": "', "=")


def test_two_outputs_cannot_become_one_input(tmp_path: Path) -> None:
    twice = Adaptation(state=(("cn", "h"), ("hn", "h")))
    with pytest.raises(ModelError, match="already takes the output 'cn'"):
        import_model(open_model(streaming(tmp_path), adaptation=twice))


def test_the_pairs_are_part_of_the_hash_and_no_others_are(tmp_path: Path) -> None:
    model = streaming(tmp_path)
    plain, paired = open_model(model), open_model(model, adaptation=CARRIED)
    assert plain.sha256 != paired.sha256
