"""Where onnxruntime can't run a model, ONNX's reference evaluator is the oracle, and reports say
so. A bundle without an oracle says that nothing is proven."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.building import request_for, run_edgekit

from edgekit.base.errors import ModelError, UsageError
from edgekit.building.build import build
from edgekit.bundle.folder import open_bundle
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import open_model
from edgekit.models.oracle import oracle_for
from edgekit.verbs.export.application import export
from edgekit.verbs.verify import verify


def scattering(folder: Path) -> Path:
    """Updates larger than the indices: onnxruntime refuses that, the evaluator does not."""
    graph = helper.make_graph(
        [helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0)],
        "test",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4]),
            helper.make_tensor_value_info("u", TensorProto.FLOAT, [3, 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])],
        [numpy_helper.from_array(np.array([[0, 1], [2, 3]]), "i")],
    )
    path = folder / "scattering.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


def unknown_to_all(folder: Path) -> Path:
    """Tokens beyond a table's end: an error in every runtime of ONNX."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"], axis=0)],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.array([9]), "i")],
    )
    path = folder / "unknown.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


def test_the_error_function_has_the_precision_of_its_type(tmp_path: Path) -> None:
    """onnxruntime has no such kernel for float64, and the evaluator's own rounds to float32."""
    values = np.array([0.0, -0.0, 1e-300, 1e-9, 0.3, -1.7, 2.2, 6.5, np.inf, -np.inf, np.nan])
    graph = helper.make_graph(
        [helper.make_node("Erf", ["x"], ["y"]), helper.make_node("Gelu", ["x"], ["z"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [values.size])],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [values.size]) for name in "yz"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "erf.onnx")

    found = oracle_for(open_model(tmp_path / "erf.onnx")).run({"x": values})

    wanted = np.array([math.erf(value) for value in values])
    np.testing.assert_array_equal(found["y"], wanted)
    known = np.isfinite(values)
    gelu = 0.5 * values[known] * (1 + np.vectorize(math.erf)(values[known] / math.sqrt(2)))
    np.testing.assert_allclose(found["z"][known], gelu, rtol=1e-13)


def test_the_reference_evaluator_is_asked_and_named(tmp_path: Path) -> None:
    request = request_for(scattering(tmp_path))

    bundle = build(request, tmp_path / "bundle", use_cache=False, isolated=False).bundle
    report = verify(bundle, LocalDevice())

    assert report.passed
    assert report.oracle == f"the ONNX reference evaluator {onnx.__version__}"
    given = bundle.reference_inputs()
    expected = given["x"].copy()
    expected[[0, 2], 0] = given["u"][[0, 1], 0]
    expected[[1, 3], 1] = given["u"][[0, 1], 1]
    np.testing.assert_array_equal(bundle.reference_outputs()["y"], expected)


def test_without_any_oracle_a_build_fails_and_says_how_to_go_on(tmp_path: Path) -> None:
    source = open_model(unknown_to_all(tmp_path))

    with pytest.raises(ModelError, match=r"onnxruntime .* cannot run the model") as failed:
        oracle_for(source).run({"x": np.zeros(4, np.float32)})

    assert "--no-verify" in str(failed.value.hint)
    assert any("the ONNX reference evaluator" in line for line in failed.value.details)


def test_a_bundle_without_expected_outputs_says_that_nothing_is_proven(tmp_path: Path) -> None:
    model, out = scattering(tmp_path), tmp_path / "bundle"

    words = (str(model), "--board", "local", "--no-verify", "-o", str(out))
    built = run_edgekit("build", *words, folder=tmp_path)
    deployed = run_edgekit("deploy", *words, "--no-bench", folder=tmp_path)

    assert built.code == 0, built.err
    assert "expected outputs   none: nothing is proven" in built.out
    assert "verified against  none: nothing is proven" in deployed.out
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["oracle"] is None
    assert [vector["outputs"] for vector in manifest["vectors"]] == [[]]
    bundle = open_bundle(out)
    for refused in (
        lambda: verify(bundle, LocalDevice()),
        lambda: export(bundle, tmp_path / "application"),
    ):
        with pytest.raises(UsageError, match="it holds no expected outputs") as error:
            refused()
        assert error.value.hint


def test_c_for_a_microcontroller_is_never_built_without_its_test(tmp_path: Path) -> None:
    words = ("build", str(scattering(tmp_path)), "--board", "mps2-an386", "--no-verify")
    ran = run_edgekit(*words, folder=tmp_path)

    assert ran.code != 0
    assert "a model in C carries a test of its own" in ran.err
