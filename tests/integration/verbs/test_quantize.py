"""edgekit quantize: a float model to int8, what it says of the cost, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from support.building import Ran, run_edgekit
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.tensorrt_regions import offloaded

from edgekit.models.model import import_model, open_model
from edgekit.verbs.quantization.loss import _Power
from edgekit.verbs.quantization.quantiser import name_nodes

CLASSES, SIDE, SAMPLES = 4, 16, 48


@dataclass(frozen=True)
class Lab:
    folder: Path
    pictures: np.ndarray
    labels: np.ndarray

    def quantize(self, *arguments: object) -> Ran:
        return run_edgekit("quantize", *map(str, arguments), folder=self.folder)


def network(
    random: np.random.Generator, pictures: np.ndarray, labels: np.ndarray
) -> onnx.ModelProto:
    """A convolution with batch norm, one that follows it, and a classifier that was fitted."""

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")

    constants = {
        "w1": weights(8, 1, 3, 3),
        "gamma": random.uniform(0.5, 1.5, 8).astype("float32"),
        "beta": random.uniform(-0.1, 0.1, 8).astype("float32"),
        "mean": np.zeros(8, "float32"),
        "variance": np.ones(8, "float32"),
        "w2": weights(16, 8, 3, 3),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c1", "gamma", "beta", "mean", "variance"], ["b1"], name="norm"
        ),
        helper.make_node("Relu", ["b1"], ["r1"], name="first_relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="second", strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], name="second_relu"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["features"], name="flatten"),
    ]
    model = onnx_model(nodes, {"image": [1, 1, SIDE, SIDE]}, ["features"], constants)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    features = np.concatenate([session.run(None, {"image": p[None]})[0] for p in pictures])
    wanted = np.eye(CLASSES)[labels] * 2 - 1
    extended = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    fitted = np.linalg.lstsq(extended, wanted, rcond=None)[0].astype("float32")
    nodes.append(helper.make_node("Gemm", ["features", "w3", "b3"], ["scores"], name="classes"))
    constants |= {"w3": fitted[:-1], "b3": fitted[-1]}
    return onnx_model(nodes, {"image": [1, 1, SIDE, SIDE]}, ["scores"], constants)


def draw(random: np.random.Generator, label: int) -> np.ndarray:
    """Stripes of four directions, smooth."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    angle = np.pi * label / CLASSES + random.uniform(-0.1, 0.1)
    wave = np.sin(12 * (x * np.cos(angle) + y * np.sin(angle)) + random.uniform(0, 6))
    return (wave + 0.1 * random.standard_normal(wave.shape))[None].astype("float32")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("quantize")
    random = np.random.default_rng(11)
    labels = random.integers(0, CLASSES, SAMPLES)
    pictures = np.stack([draw(random, int(label)) for label in labels])
    onnx.save(network(random, pictures, labels), folder / "net.onnx")
    np.savez(folder / "data.npz", image=pictures)
    np.save(folder / "labels.npy", labels)
    np.savez(folder / "noise.npz", image=random.standard_normal(pictures.shape).astype("float32"))
    samples = folder / "samples"
    samples.mkdir()
    for index, picture in enumerate(pictures):
        np.save(samples / f"{index:03}.npy", picture[None])
    return Lab(folder, pictures, labels)


def stored(folder: Path, name: str) -> onnx.ModelProto:
    model = onnx.load(folder / name)
    onnx.checker.check_model(model)
    return model


def scores(model: onnx.ModelProto, pictures: np.ndarray) -> np.ndarray:
    """As the model says it: onnxruntime's own kernels for int8 saturate on a CPU without VNNI."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (name,) = [item.name for item in session.get_inputs()]
    return np.concatenate([session.run(None, {name: p[None]})[0] for p in pictures])


def test_every_layer_becomes_int8_and_the_report_says_what_that_costs(lab: Lab) -> None:
    ran = lab.quantize(
        "net.onnx", "--calibrate", "data.npz", "--labels", "labels.npy", "-o", "a.onnx", "--json"
    )
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    model = stored(lab.folder, "a.onnx")
    kinds = [node.op_type for node in model.graph.node]
    assert "BatchNormalization" not in kinds
    int8 = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8]
    assert sum(np.prod(t.dims) for t in int8) >= 8 * 9 + 16 * 8 * 9 + 16 * CLASSES
    assert report["samples"] == SAMPLES
    assert report["in_float"] == []

    before = scores(stored(lab.folder, "net.onnx"), lab.pictures)
    after = scores(model, lab.pictures)
    (output,) = report["losses"]["outputs"]
    assert output["max_error"] == pytest.approx(np.abs(before - after).max(), rel=1e-3)
    ratio = 10 * np.log10((before**2).sum() / ((before - after) ** 2).sum())
    assert output["signal_to_noise"] == pytest.approx(ratio, abs=0.1)
    accuracy = report["losses"]["accuracy"]
    assert accuracy["before"] == pytest.approx((before.argmax(1) == lab.labels).mean())
    assert accuracy["after"] == pytest.approx((after.argmax(1) == lab.labels).mean())


def test_the_layer_that_was_made_hard_to_quantise_leads_the_list(lab: Lab) -> None:
    model = stored(lab.folder, "net.onnx")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    spoilt = numpy_helper.to_array(tensors["w2"]).copy()
    spoilt[0, 0, 0, 0] = 200.0  # one weight takes the whole range of a scale for the tensor
    tensors["w2"].CopyFrom(numpy_helper.from_array(spoilt, "w2"))
    onnx.save(model, lab.folder / "spoilt.onnx")

    def worst(*options: str) -> tuple[str, float]:
        ran = lab.quantize("spoilt.onnx", "-c", "data.npz", "-o", "b.onnx", "--json", *options)
        assert ran.code == 0, ran.err
        layers = json.loads(ran.out)["layers"]
        second = next(layer for layer in layers if layer["name"] == "second")
        return layers[0]["name"], second["signal_to_noise"]

    name, tensor_wide = worst("--per-tensor")
    assert name == "second"
    _, channel_wide = worst("--per-channel")
    assert channel_wide > tensor_wide + 3.0


def test_shapes_that_onnx_knows_are_not_inferred_as_symbols(lab: Lab) -> None:
    script = f"""
        import sys
        from pathlib import Path
        import onnx
        from edgekit.models.model import open_model, scan_model
        from edgekit.verbs.quantization.quantiser import prepared
        folder = Path({str(lab.folder)!r})
        inputs = scan_model(open_model(folder / "net.onnx")).inputs
        prepared(onnx.load(folder / "net.onnx"), inputs, folder)
        print("sympy" in sys.modules, (folder / "prepared.onnx").stat().st_size > 0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.slow
def test_a_folder_of_samples_and_one_file_of_them_give_the_same_model(lab: Lab) -> None:
    assert lab.quantize("net.onnx", "-c", "samples", "-o", "folder.onnx").code == 0
    assert lab.quantize("net.onnx", "-c", "data.npz", "-o", "file.onnx").code == 0
    assert (lab.folder / "folder.onnx").read_bytes() == (lab.folder / "file.onnx").read_bytes()


def test_ends_in_int8_give_the_same_stored_numbers(lab: Lab) -> None:
    assert lab.quantize("net.onnx", "-c", "data.npz", "-o", "f.onnx").code == 0
    assert lab.quantize("net.onnx", "-c", "data.npz", "-o", "i.onnx", "--ends", "int8").code == 0
    with_float, bare = stored(lab.folder, "f.onnx"), stored(lab.folder, "i.onnx")
    types = {item.type.tensor_type.elem_type for item in (*bare.graph.input, *bare.graph.output)}
    assert types == {onnx.TensorProto.INT8}
    tensors = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in with_float.graph.initializer
    }

    def ends(name: str) -> tuple[float, int]:
        return float(tensors[f"{name}_scale"]), int(tensors[f"{name}_zero_point"])

    (scale_in, zero_in), (scale_out, zero_out) = ends("image"), ends("scores")
    quantised = np.clip(np.rint(lab.pictures / scale_in) + zero_in, -128, 127).astype("int8")
    kept = np.load(lab.folder / "i.samples.npz")["image"]
    np.testing.assert_array_equal(kept[:, 0], quantised[[0, 23, 47]].reshape(kept[:, 0].shape))
    raw = scores(bare, quantised)
    expected = scores(with_float, lab.pictures)
    np.testing.assert_allclose((raw.astype("float32") - zero_out) * scale_out, expected, atol=1e-6)


def test_a_node_can_stay_in_float(lab: Lab) -> None:
    ran = lab.quantize(
        "net.onnx", "-c", "data.npz", "-o", "x.onnx", "--exclude", "second", "--json"
    )
    assert ran.code == 0, ran.err
    kept = {
        tensor.name: tensor.data_type for tensor in stored(lab.folder, "x.onnx").graph.initializer
    }
    assert kept["w2"] == onnx.TensorProto.FLOAT
    assert any("Conv" in left for left in json.loads(ran.out)["in_float"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "needs samples"),
        (("-c", "noise.npz"), 3, "look like noise"),
        (("-c", "nowhere"), 3, "nowhere"),
        (("-c", "data.npz", "--exclude", "secnd"), 3, "no node 'secnd'"),
        (("-c", "data.npz", "--random", "3"), 2, "not with both"),
        (("-c", "cut"), 3, "z.npy"),
        (("-c", "data.npz", "--labels", "short.txt"), 3, "2 labels"),
        (("-c", "data.npz", "--labels", "words.txt"), 3, "words.txt"),
        (("-c", "wrong.npz"), 3, "takes"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    lab: Lab, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (lab.folder / "short.txt").write_text("1\n2\n")
    cut = lab.folder / "cut"
    cut.mkdir(exist_ok=True)
    for index, picture in enumerate(lab.pictures[:20]):  # more than are looked at beforehand
        np.save(cut / f"{index:03}.npy", picture[None])
    (cut / "z.npy").write_bytes((cut / "000.npy").read_bytes()[:-100])
    (lab.folder / "words.txt").write_text("cat\n" * SAMPLES)
    np.savez(lab.folder / "wrong.npz", image=np.zeros((3, 1, 8, 8), "float32"))
    ran = lab.quantize("net.onnx", *arguments, "-o", "never.onnx")
    assert ran.code == code, ran.err
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not (lab.folder / "never.onnx").exists()


def test_the_float_model_is_not_written_over(lab: Lab) -> None:
    before = (lab.folder / "net.onnx").read_bytes()
    ran = lab.quantize("net.onnx", "-c", "data.npz", "-o", lab.folder / "net.onnx")
    assert ran.code == 2
    assert "float model itself" in ran.err
    assert (lab.folder / "net.onnx").read_bytes() == before


def test_nodes_get_names_of_their_own() -> None:
    names = ("a_2", "a", "a", "", "Relu_3", "Relu_3_4")
    nodes = [helper.make_node("Relu", ["x"], [f"y{i}"], name=n) for i, n in enumerate(names)]
    model = onnx_model(nodes, {"x": [1]}, ["y0"], {})
    name_nodes(model)
    assert len({node.name for node in model.graph.node}) == len(names)


def test_outputs_that_are_no_numbers_any_more_have_no_signal() -> None:
    power = _Power()
    power.add(np.ones(2), np.array([1.0, np.inf]))
    assert power.decibels == -np.inf


def test_noise_is_taken_when_told_and_the_user_is_warned(lab: Lab) -> None:
    assert lab.quantize("net.onnx", "-c", "noise.npz", "--accept-noise", "-o", "n.onnx").code == 0
    ran = lab.quantize("net.onnx", "--random", 8, "-o", "r.onnx")
    assert ran.code == 0
    assert "mean nothing" in ran.err
    assert not (lab.folder / "r.samples.npz").exists()


def test_a_build_compares_what_the_model_was_calibrated_with(lab: Lab) -> None:
    ran = lab.quantize("net.onnx", "-c", "data.npz", "-o", "known.onnx", "--json")
    assert json.loads(ran.out)["samples_file"] == "known.samples.npz"

    words = ("deploy", "known.onnx", "--board", "local", "--no-bench", "--json", "-o")
    for more in (("known",), ("integers", "--ends", "int8")):
        deployed = run_edgekit(*words, *more, folder=lab.folder)

        assert deployed.code == 0, deployed.err
        compared = json.loads(deployed.out)["verification"]["samples"]
        names = [sample["name"] for sample in compared]
        assert names[-3:] == ["sample-1", "sample-2", "sample-3"]
    lab.quantize("net.onnx", "--random", 8, "-o", "known.onnx")
    assert not (lab.folder / "known.samples.npz").exists()


def test_a_quantised_model_is_not_quantised_again(lab: Lab) -> None:
    assert lab.quantize("net.onnx", "-c", "data.npz", "-o", "once.onnx").code == 0
    ran = lab.quantize("once.onnx", "-c", "data.npz", "-o", "twice.onnx")
    assert ran.code == 4
    assert "quantised already" in ran.err


def test_for_a_board_with_tensorrt_all_of_it_is_what_tensorrt_takes(lab: Lab) -> None:
    ran = lab.quantize("net.onnx", "-c", "data.npz", "-o", "t.onnx", "--board", "jetson-orin")
    assert ran.code == 0, ran.err
    assert 'precision = "int8" in [offload.tensorrt]' in ran.out
    whole = stored(lab.folder, "t.onnx")
    picture = lab.pictures[0][None]
    (expected,) = judged_by_onnxruntime(whole, {"image": picture})

    result = offloaded(import_model(open_model(lab.folder / "t.onnx")), [picture], precision="int8")

    assert not result.left
    assert len(result.regions) == 1
    np.testing.assert_allclose(result.outputs[0], expected, rtol=0, atol=1e-4)


def test_who_says_so_gets_asymmetric_activations_for_any_board(lab: Lab) -> None:
    def zero_points(*options: str) -> set[int]:
        assert lab.quantize("net.onnx", "-c", "data.npz", "-o", "z.onnx", *options).code == 0
        model = stored(lab.folder, "z.onnx")
        named = {node.input[2] for node in model.graph.node if node.op_type == "QuantizeLinear"}
        tensors = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name in named]
        return {int(value) for tensor in tensors for value in tensor.reshape(-1)}

    assert zero_points("--symmetric") == {0}
    assert zero_points("--board", "jetson-orin", "--asymmetric") != {0}
