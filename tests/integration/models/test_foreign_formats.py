"""TorchScript, Keras and SavedModel: converted by their own library, after consent."""

from __future__ import annotations

import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.needs import import_needed, needs
from support.tflite_models import run_both

from edgekit.base.errors import EdgekitError, ModelError, UntrustedProjectError
from edgekit.base.trust import TrustedFile, place_of, trust
from edgekit.models.foreign_formats import model_effects
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import ModelSource, check_inputs, open_model, signature_of
from edgekit.models.oracle import oracle_for

torch = import_needed("torch")
RANDOM = np.random.default_rng(5)


def scripted(path: Path) -> Path:
    """Save a network with a loop and a choice that its shapes decide."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 4, 3)
            self.norm = torch.nn.BatchNorm2d(4)

        def forward(self, image: torch.Tensor, scale: torch.Tensor) -> Any:
            found = self.norm(self.first(image))
            for _ in range(2):
                found = torch.relu(found) * scale
            if found.shape[1] > 3:
                found = found + 1
            return found, found.mean(dim=(2, 3))

    torch.manual_seed(0)
    torch.jit.script(Net().eval()).save(str(path))
    return path


def check_numbers(source: ModelSource) -> None:
    """Compare what a deployment gives with the oracle."""
    got, expected = run_both(source, reference_inputs(signature_of(source).inputs, 3))
    assert [*got] == [*expected]
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=1e-5)


def test_a_scripted_program_gives_pytorchs_numbers(tmp_path: Path) -> None:
    shapes = {"image": (1, 3, 8, 8), "scale": (1,)}
    source = open_model(scripted(tmp_path / "net.pt"), shapes)
    assert (source.format, source.name) == ("torchscript", "net")
    assert {spec.name: spec.shape for spec in signature_of(source).inputs} == shapes
    check_numbers(source)


def test_a_traced_program_of_whole_numbers_is_found_out(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 3)).eval()
    torch.jit.trace(net, torch.zeros(1, 5, dtype=torch.int64)).save(str(tmp_path / "words.pt"))
    source = open_model(tmp_path / "words.pt", {"input": (1, 5)})
    (words,) = signature_of(source).inputs
    assert (words.dtype, words.shape) == ("int64", (1, 5))
    check_numbers(source)


def test_the_shapes_that_a_program_lacks_are_asked_for(tmp_path: Path) -> None:
    path = scripted(tmp_path / "net.pt")
    with pytest.raises(ModelError, match="does not hold the shape of its input image") as caught:
        check_inputs(open_model(path))
    assert "--shape image=1,3,224,224" in str(caught.value.hint)
    with pytest.raises(ModelError, match="does not run with image"):
        check_inputs(open_model(path, {"image": (1, 5, 8, 8), "scale": (1,)}))


def test_nothing_is_loaded_without_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEKIT_TRUSTED_PATH")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path, shapes = scripted(tmp_path / "net.pt"), {"image": (1, 3, 8, 8), "scale": (1,)}
    with pytest.raises(UntrustedProjectError, match="not trusted yet") as caught:
        open_model(path, shapes)
    assert f"edgekit trust {path}" in str(caught.value.hint)
    assert "can read and write files" in caught.value.details[0]

    trust([TrustedFile(place_of(path), model_effects(path), False)])
    assert open_model(path, shapes).format == "torchscript"

    torch.jit.script(torch.nn.ReLU()).save(str(path))  # another program under the same name
    with pytest.raises(UntrustedProjectError):
        open_model(path, shapes)


def test_a_damaged_program_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    with (
        zipfile.ZipFile(scripted(tmp_path / "whole.pt")) as whole,
        zipfile.ZipFile(path, "w") as to,
    ):
        for name in whole.namelist():
            code = name.endswith(".py")
            to.writestr(name, b"def forward(" if code else whole.read(name))
    with pytest.raises(ModelError, match=r"cannot load net\.pt"):
        check_inputs(open_model(path, {"image": (1, 3, 8, 8), "scale": (1,)}))


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return import_needed("keras")


@needs("keras")
def test_a_keras_model_gives_its_numbers(keras: Any, tmp_path: Path) -> None:
    picture = keras.Input((12, 10, 3), name="picture")
    found = keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(picture)
    found = keras.layers.BatchNormalization()(found)
    found = keras.layers.DepthwiseConv2D(3, padding="same")(found)
    found = keras.layers.GlobalAveragePooling2D()(found)
    found = keras.layers.Dense(5, activation="softmax")(found)
    path = tmp_path / "net.h5"
    keras.Model(picture, found).save(path)
    expected = keras.Model(picture, found)(feed := np.ones((1, 12, 10, 3), "float32"))

    source = open_model(path)

    assert source.format == "keras"
    (spec,) = signature_of(source).inputs
    assert (spec.name, spec.shape) == ("picture", (1, 12, 10, 3))
    (got,) = oracle_for(source).run({"picture": feed}).values()
    np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-5)
    check_numbers(source)


@needs("keras")
def test_a_lambda_of_keras_runs_in_the_child_alone(keras: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = "str(__import__('os').getpid())"
    code = f"lambda x: __import__('pathlib').Path({str(mark)!r}).write_text({process}) and x"
    layer = keras.layers.Lambda(eval(code))
    keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(2)]).save(tmp_path / "net.keras")
    mark.unlink(missing_ok=True)
    with suppress(EdgekitError):  # a function that writes files need not be exportable
        check_inputs(open_model(tmp_path / "net.keras"))
    assert mark.read_text() != str(os.getpid())


@needs("tensorflow")
def test_a_saved_model_gives_tensorflows_numbers(tmp_path: Path) -> None:
    tf = import_needed("tensorflow")

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(RANDOM.normal(0, 1, (6, 4)).astype("float32"))

        @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, "x")])  # type: ignore[misc]
        def __call__(self, x: Any) -> dict[str, Any]:
            found = tf.nn.relu(x @ self.weights)
            return {"scores": tf.nn.softmax(found), "largest": tf.reduce_max(found, 1)}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"))
    source = open_model(tmp_path / "net")
    assert (source.format, source.name) == ("savedmodel", "net")
    check_numbers(source)
