"""Model files of other programs, and the lines of Python that make a file for edgekit from them.

edgekit loads none of them: most hold pickles or code, which would run. The user's own environment,
which made the file, converts it. `foreign/` converts some of them where their library is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import ModelError
from edgekit.models.foreign_formats import is_torch_script

_READS = "edgekit reads .onnx, .tflite and PyTorch's exported .pt2"


@dataclass(frozen=True)
class OtherFormat:
    name: str
    """What it is, as a phrase."""
    lines: tuple[str, ...]
    """Python that converts {file} into {onnx}, {tflite} or {pt2}."""
    advice: str = "run the three lines in Python, with the model's own input shape"


_EXPORT = "torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 224, 224),)), {pt2})"
_KERAS = OtherFormat(
    "a Keras model",
    (
        "import tensorflow as tf; model = tf.keras.models.load_model({file}, compile=False)",
        "content = tf.lite.TFLiteConverter.from_keras_model(model).convert()",
        'open({tflite}, "wb").write(content)',
    ),
    "pip install 'edgekit[keras]'; or run the three lines where TensorFlow is installed",
)
SAVED_MODEL = OtherFormat(
    "a SavedModel of TensorFlow",
    (
        "import tensorflow as tf",
        "content = tf.lite.TFLiteConverter.from_saved_model({file}).convert()",
        'open({tflite}, "wb").write(content)',
    ),
    "pip install 'edgekit[tensorflow]'; or run the three lines where TensorFlow is installed",
)
TORCH_WEIGHTS = OtherFormat(
    "a pickle of PyTorch: mostly weights without the network, which is Python code",
    (
        "import torch; from your_code import Net",
        "model = Net(); model.load_state_dict(torch.load({file}, weights_only=True)); model.eval()",
        _EXPORT,
    ),
    "run the three lines in Python, with your own network and input shape",
)
TORCH_SCRIPT = OtherFormat(
    "a TorchScript program, which can reach files while it is loaded",
    (
        "import torch; model = torch.jit.load({file}).eval()",
        "example = (torch.zeros(1, 3, 224, 224),)",
        "torch.onnx.export(model, example, {onnx}, dynamo=False)",
    ),
    "pip install 'edgekit[torch]'; or run the three lines where PyTorch is installed",
)
_SAFETENSORS = OtherFormat(
    "weights without the network, which is Python code",
    (
        "import torch; from safetensors.torch import load_file; from your_code import Net",
        "model = Net(); model.load_state_dict(load_file({file})); model.eval()",
        _EXPORT,
    ),
    "run the three lines in Python, with your own network and input shape",
)
_CORE_ML = OtherFormat(
    "a Core ML model, which no maintained tool converts to another format",
    (),
    "export the model to ONNX from the program that trained it",
)
_PICKLE = OtherFormat(
    "a Python pickle, which runs code while it is loaded",
    (
        "import joblib, skl2onnx",
        'model = skl2onnx.to_onnx(joblib.load({file}), samples[:1].astype("float32"))',
        'open({onnx}, "wb").write(model.SerializeToString())',
    ),
    "for a model of scikit-learn run the three lines in Python, with samples of your own",
)
_ENGINE = OtherFormat(
    "an engine that was built for one GPU and one version of its library",
    (),
    "give edgekit the .onnx file that the engine was built from",
)
FORMATS = {
    **dict.fromkeys((".h5", ".hdf5", ".keras"), _KERAS),
    **dict.fromkeys((".pt", ".pth"), TORCH_WEIGHTS),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _PICKLE),
    **dict.fromkeys((".engine", ".plan", ".trt"), _ENGINE),
    ".safetensors": _SAFETENSORS,
    **dict.fromkeys((".mlmodel", ".mlpackage"), _CORE_ML),
    ".gguf": OtherFormat(
        "a language model's weights for llama.cpp, without the network",
        (),
        "run it with llama.cpp, or export the model that it was made from to ONNX",
    ),
    ".ort": OtherFormat(
        "a model in the form of onnxruntime's mobile builds",
        (),
        "give edgekit the .onnx file that it was made from",
    ),
}


def refusal(path: Path) -> ModelError:
    """Say what a file or folder of no known format is, and how to make one for edgekit from it."""
    if path.name.endswith(".onnx.data"):
        model = path.with_suffix("")
        return ModelError(
            f"{path.name} holds the weights of an ONNX model", hint=f"name {model.name} instead"
        )
    found = _format_of(path)
    if found is not None:
        values = {kind: repr(f"{path.stem}.{kind}") for kind in ("onnx", "tflite", "pt2")}
        return ModelError(
            f"{path.name} is {found.name}; {_READS}",
            hint=found.advice,
            details=tuple(line.format(file=repr(str(path)), **values) for line in found.lines),
        )
    if path.is_dir():
        return ModelError(
            f"{path} is a folder, not a model file",
            hint="name the .onnx, .tflite or .pt2 file itself",
        )
    return ModelError(
        f"{path.name} has a suffix that names no model format edgekit reads"
        if path.suffix
        else f"{path} has no suffix that names a model format",
        hint=_READS,
    )


def _format_of(path: Path) -> OtherFormat | None:
    if path.is_dir() and (path / "saved_model.pb").is_file():
        return SAVED_MODEL
    found = FORMATS.get(path.suffix.lower())
    return TORCH_SCRIPT if found is TORCH_WEIGHTS and is_torch_script(path) else found
