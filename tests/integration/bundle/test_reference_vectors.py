"""A bundle that is right on the usual inputs and wrong at an edge is refused, and told where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.building import request_for, run_edgekit
from support.local_bundles import copied, resealed
from support.needs import needs
from support.onnx_models import onnx_model

from edgekit.base.errors import InputError, VerificationError
from edgekit.building.build import build
from edgekit.building.reference_vectors import MOST_BYTES
from edgekit.bundle.folder import Bundle, open_bundle
from edgekit.bundle.manifest import manifest_text
from edgekit.devices.local.device import LocalDevice
from edgekit.verbs.verify import VerifyReport, raise_if_failed, verify

WEIGHTS = {
    "w": np.linspace(-0.2, 0.2, 4 * 3 * 9, dtype=np.float32).reshape(4, 3, 3, 3),
    "low": np.array(0, np.float32),
    "high": np.array(6, np.float32),
}
SHAPE = (1, 3, 6, 6)
NODES = {
    "relu": helper.make_node("Relu", ["c"], ["y"]),
    "clip": helper.make_node("Clip", ["c", "low", "high"], ["y"]),
    # The sum where it is larger than zero: what a ReLU computes that loses NaN.
    "lossy": helper.make_node("Where", ["positive", "c", "low"], ["y"]),
}


def small_model(folder: Path, nodes: Sequence[str], shape: Sequence[int] = SHAPE) -> Path:
    used = {name: value for name, value in WEIGHTS.items() if name == "w"}
    made = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])]
    for name in nodes:
        if name == "lossy":
            made.append(helper.make_node("Greater", ["c", "low"], ["positive"]))
        made.append(NODES[name])
        used |= {each: WEIGHTS[each] for each in NODES[name].input if each in WEIGHTS}
        if name == "lossy":
            used["low"] = WEIGHTS["low"]
    path = folder / f"{'-'.join(nodes)}.onnx"
    onnx.save(onnx_model(made, {"x": shape}, ["y"], used), path)
    return path


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    folder = tmp_path_factory.mktemp("vectors")
    return {
        name: build(
            request_for(small_model(folder, [name])), folder / name, use_cache=False, isolated=False
        ).bundle
        for name in ("relu", "clip", "lossy")
    }


def with_library_of(bundle: Bundle, other: Bundle, folder: Path) -> Bundle:
    """The same bundle, whose library computes something else."""
    copied(bundle, folder)
    shutil.copyfile(other.library, folder / bundle.library.name)
    return resealed(bundle, folder)


def failed(report: VerifyReport) -> list[str]:
    return [sample.name for sample in report.samples if not sample.passed]


def test_every_edge_is_compared(bundles: dict[str, Bundle]) -> None:
    report = verify(bundles["clip"], LocalDevice(240))

    assert report.passed
    assert [sample.name for sample in report.samples] == ["random", "zeros", "largest", "nan"]
    vectors = {vector.name: vector for vector in bundles["clip"].vectors()}
    assert not vectors["zeros"].inputs["x"].any()
    assert np.abs(vectors["largest"].inputs["x"]).max() == 256.0
    assert vectors["largest"].outputs["y"].max() == 6.0
    assert np.isnan(vectors["nan"].outputs["y"]).all()


def test_a_bound_that_only_large_values_reach_is_missed_by_no_verification(
    bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    spoilt = with_library_of(bundles["clip"], bundles["relu"], tmp_path / "spoilt")

    report = verify(spoilt, LocalDevice(240))

    assert failed(report) == ["largest"]
    with pytest.raises(VerificationError) as caught:
        raise_if_failed(report)
    assert "of the reference vector 'largest': expected 6.0, got" in caught.value.details[0]
    (output,) = report.outputs
    assert (output.worst_sample, output.name) == ("largest", "y")
    assert output.worst is not None
    assert len(output.worst.index) == 4


def test_a_kernel_that_loses_nan_is_refused(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    spoilt = with_library_of(bundles["relu"], bundles["lossy"], tmp_path / "spoilt")

    done = run_edgekit("verify", spoilt.path, "--json", folder=tmp_path)

    assert done.code == 7
    found = json.loads(done.out)
    assert [s["name"] for s in found["samples"] if not s["passed"]] == ["nan"]
    assert found["outputs"][0]["worst_sample"] == "nan"


def test_a_person_is_told_which_vectors_failed(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    spoilt = with_library_of(bundles["relu"], bundles["lossy"], tmp_path / "spoilt")

    done = run_edgekit("verify", spoilt.path, folder=tmp_path)

    assert done.code == 7
    assert "1 of 4 reference vectors failed: nan" in done.out
    assert "nan [0, 0, 0, 0]: expected nan, got 0" in done.out


def test_a_bundle_of_the_version_before_is_verified_with_its_one_vector(
    bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    """Written as edgekit did before: the vector's files in `reference` itself."""
    from support.bundles import sealed

    folder = copied(bundles["clip"], tmp_path / "old")
    document = json.loads((folder / "manifest.json").read_text())
    for name in ("input-0.npy", "output-0.npy"):
        shutil.move(folder / "reference/random" / name, folder / "reference" / name)
    for name in ("random", "zeros", "largest", "nan"):
        shutil.rmtree(folder / "reference" / name)
    del document["vectors"], document["left_out"]
    document["schema_version"] = 5
    document["inputs"][0]["reference"] = "reference/input-0.npy"
    document["outputs"][0] |= {"reference": "reference/output-0.npy", "leeway": None}
    document["files"] = [
        {**file, "path": file["path"].replace("/random", "")}
        for file in document["files"]
        if "/" not in file["path"] or "/random/" in file["path"]
    ]
    (folder / "manifest.json").write_bytes(sealed(document))

    opened = open_bundle(folder)
    report = verify(opened, LocalDevice(240))

    assert report.passed
    assert [sample.name for sample in report.samples] == ["random"]
    done = run_edgekit("inspect", folder, "--json", folder=tmp_path)
    assert json.loads(done.out)["vectors"][0]["inputs"] == ["reference/input-0.npy"]


def test_a_model_with_large_inputs_keeps_one_vector_and_says_why(tmp_path: Path) -> None:
    side = 1 + int((MOST_BYTES / 4 / 2) ** 0.5)
    node = helper.make_node("Neg", ["x"], ["y"])
    onnx.save(onnx_model([node], {"x": (side, side)}, ["y"], {}), tmp_path / "large.onnx")

    built = build(
        request_for(tmp_path / "large.onnx"), tmp_path / "b", use_cache=False, isolated=False
    )

    manifest = built.bundle.manifest
    assert [vector.name for vector in manifest.vectors] == ["random"]
    assert [left.name for left in manifest.left_out] == ["zeros", "largest", "nan"]
    assert all("may take 32 MiB" in left.reason for left in manifest.left_out)
    size = sum(file.size for file in manifest.files if file.role.startswith("reference"))
    assert size < 1.01 * MOST_BYTES


def test_samples_beside_a_model_become_vectors(tmp_path: Path) -> None:
    model = small_model(tmp_path, ["clip"])
    random = np.random.default_rng(0)
    samples = random.uniform(0, 40, (5, *SHAPE)).astype(np.float32)
    np.savez(tmp_path / "clip.samples.npz", x=samples)

    built = build(request_for(model), tmp_path / "b", isolated=False)

    names = [vector.name for vector in built.bundle.manifest.vectors]
    assert names[-3:] == ["sample-1", "sample-2", "sample-3"]
    last = list(built.bundle.vectors())[-1]
    np.testing.assert_array_equal(last.inputs["x"], samples[-1])
    assert verify(built.bundle, LocalDevice(240)).passed
    assert build(request_for(model), tmp_path / "b", isolated=False).from_cache

    np.savez(tmp_path / "clip.samples.npz", x=samples[:1])
    again = build(request_for(model), tmp_path / "b", isolated=False)
    assert not again.from_cache
    assert len(again.bundle.manifest.vectors) == 5

    np.savez(tmp_path / "clip.samples.npz", x=samples[..., :2])
    with pytest.raises(InputError, match="samples of the input 'x'"):
        build(request_for(model), tmp_path / "b", isolated=False)


PASS_NAN_ON: tuple[tuple[str, list[str], dict[str, object]], ...] = (
    *((name, ["x"], {}) for name in ("Neg", "Abs", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan")),
    *((name, ["x"], {}) for name in ("Tanh", "Sigmoid", "Erf", "Floor", "Ceil", "Round")),
    *((name, ["x"], {}) for name in ("Asin", "Atan", "Sinh", "Cosh", "Softplus", "Softsign")),
    *((name, ["x"], {}) for name in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSwish")),
    *((name, ["x"], {}) for name in ("HardSigmoid", "GlobalAveragePool", "Reciprocal")),
    ("Max", ["x", "low"], {}),
    ("Min", ["x", "high"], {}),
    ("PRelu", ["x", "slope"], {}),
    ("Pow", ["x", "high"], {}),
    ("Softmax", ["x"], {"axis": 1}),
    ("LogSoftmax", ["x"], {"axis": 1}),
    ("MatMul", ["x", "m"], {}),
    ("ReduceMean", ["x"], {"axes": [2, 3]}),
    ("AveragePool", ["x"], {"kernel_shape": [2, 2]}),
    ("ConvTranspose", ["x", "t"], {}),
    ("LayerNormalization", ["x", "one"], {"axis": -1}),
    ("InstanceNormalization", ["x", "three", "three"], {}),
    ("CumSum", ["x", "axis"], {}),
    ("Resize", ["x", "", "scales"], {"mode": "linear"}),
    ("Pad", ["x", "pads"], {}),
)


def test_operators_that_count_as_passing_nan_on_do_so(tmp_path: Path) -> None:
    """An operator an output, all in one model; compiler/passes/nan_paths.py has the list."""
    weights = {
        "low": WEIGHTS["low"],
        "high": WEIGHTS["high"],
        "slope": np.full((3, 1, 1), 0.25, np.float32),
        "m": np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5),
        "t": np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 4, 2, 2),
        "one": np.ones(6, np.float32),
        "three": np.ones(3, np.float32),
        "axis": np.array(1),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }
    nodes = [
        helper.make_node(name, inputs, [f"{name}{k}"], **attributes)
        for k, (name, inputs, attributes) in enumerate(PASS_NAN_ON)
    ]
    outputs = [node.output[0] for node in nodes]
    onnx.save(onnx_model(nodes, {"x": SHAPE}, outputs, weights), tmp_path / "many.onnx")

    bundle = build(
        request_for(tmp_path / "many.onnx"), tmp_path / "b", use_cache=False, isolated=False
    ).bundle

    report = verify(bundle, LocalDevice(240))
    assert failed(report) == []
    nan = next(vector for vector in bundle.vectors() if vector.name == "nan")
    assert all(np.isnan(array).any() for array in nan.outputs.values())


@pytest.mark.parametrize(
    ("dtype", "only_truth"), [("float32", False), ("float64", False), ("float32", True)]
)
def test_signs_and_truth_of_nan_are_those_of_onnxruntime(
    tmp_path: Path, dtype: str, only_truth: bool
) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Sign", ["x"], ["sign"]),
        helper.make_node("Cast", ["x"], ["truth"], to=onnx.TensorProto.BOOL),
        helper.make_node("IsNaN", ["x"], ["unknown"]),
        helper.make_node("Cast", ["unknown"], ["number"], to=element),
    ]
    types = {"truth": onnx.TensorProto.BOOL}
    if not only_truth:
        types |= {"sign": element, "number": element}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", element, SHAPE)],
        [helper.make_tensor_value_info(name, kind, SHAPE) for name, kind in types.items()],
    )
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), tmp_path / "net.onnx")

    bundle = build(
        request_for(tmp_path / "net.onnx"), tmp_path / "b", use_cache=False, isolated=False
    ).bundle

    assert failed(verify(bundle, LocalDevice(240))) == []
    nan = next(vector for vector in bundle.vectors() if vector.name == "nan")
    places = np.isnan(nan.inputs["x"])
    assert places.any(), bundle.manifest.left_out
    assert nan.outputs["truth"][places].all()
    if not only_truth:
        assert np.isnan(nan.outputs["sign"][places]).all()
        np.testing.assert_array_equal(nan.outputs["number"], places)


@needs("torch")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signs_and_truth_of_nan_are_those_of_pytorch(tmp_path: Path, dtype: str) -> None:
    import torch

    class Signs(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.sign(x), x.to(torch.bool), x.isnan().to(x.dtype), 2 * x

    program = torch.export.export(Signs(), (torch.zeros(SHAPE, dtype=getattr(torch, dtype)),))
    torch.export.save(program, tmp_path / "net.pt2")

    bundle = build(
        request_for(tmp_path / "net.pt2"), tmp_path / "b", use_cache=False, isolated=False
    ).bundle

    assert failed(verify(bundle, LocalDevice(240))) == []
    nan = next(vector for vector in bundle.vectors() if vector.name == "nan")
    assert any(np.isnan(array).any() for array in nan.inputs.values())


def test_a_softmax_in_float16_keeps_nan(tmp_path: Path) -> None:
    """Its maximum may lose NaN: the difference from it does not."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    attention (float16[2, 8] x) => (float16[2, 8] y) { y = Softmax (x) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")

    bundle = build(
        request_for(tmp_path / "net.onnx"), tmp_path / "b", use_cache=False, isolated=False
    ).bundle

    assert "nan" in [vector.name for vector in bundle.manifest.vectors]
    assert failed(verify(bundle, LocalDevice(60))) == []


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [("MaxPool", {"kernel_shape": [2, 2]}), ("ReduceMax", {"axes": [1]}), ("ArgMax", {})],
)
def test_a_model_that_may_lose_nan_gets_no_such_vector_and_says_why(
    tmp_path: Path, operator: str, attributes: dict[str, object]
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    types = {"y": onnx.TensorProto.INT64} if operator == "ArgMax" else {}
    onnx.save(onnx_model([node], {"x": SHAPE}, ["y"], {}, types), tmp_path / "net.onnx")

    manifest = build(
        request_for(tmp_path / "net.onnx"), tmp_path / "b", use_cache=False, isolated=False
    ).bundle.manifest

    assert [vector.name for vector in manifest.vectors] == ["random", "zeros", "largest"]
    (left,) = manifest.left_out
    assert left.name == "nan"
    assert left.reason.endswith("may lose NaN")


def test_values_that_overflow_are_tried_smaller_and_then_left_out(tmp_path: Path) -> None:
    """exp(256) is infinite and exp(16) is not; the exponential of that is."""
    vectors = {}
    for depth in (1, 2):
        names = ["x", "a", "b"][: depth + 1]
        nodes = [helper.make_node("Exp", [before], [after]) for before, after in pairwise(names)]
        path = tmp_path / f"exp{depth}.onnx"
        onnx.save(onnx_model(nodes, {"x": SHAPE}, [names[-1]], {}), path)
        built = build(request_for(path), tmp_path / f"b{depth}", use_cache=False, isolated=False)
        vectors[depth] = built.bundle

    one = {vector.name: vector for vector in vectors[1].vectors()}
    assert one["largest"].inputs["x"].max() == 16.0
    assert vectors[1].manifest.left_out == ()
    assert [left.name for left in vectors[2].manifest.left_out] == ["largest"]
    assert "overflows" in vectors[2].manifest.left_out[0].reason


def test_a_bundle_without_an_oracle_holds_the_usual_inputs_alone(tmp_path: Path) -> None:
    request = replace(request_for(small_model(tmp_path, ["clip"])), verified=False)

    manifest = build(request, tmp_path / "b", use_cache=False, isolated=False).bundle.manifest

    assert [(vector.name, vector.outputs) for vector in manifest.vectors] == [("random", ())]
    assert manifest.left_out == ()
    assert '"leeways"' not in manifest_text(manifest)
