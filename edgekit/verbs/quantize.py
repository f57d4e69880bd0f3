"""Quantises a float ONNX model to int8 and reports the loss of accuracy."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import InputError, MissingToolError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.options import option
from edgekit.base.own_backends import own_backends
from edgekit.base.report import Report
from edgekit.base.wording import counted, percent, size
from edgekit.models.ends import NO_ENDS
from edgekit.models.model import ModelSource, held

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.samples import InputFile
    from edgekit.profiles.board import Board
    from edgekit.verbs.quantization.loss import LayerLoss, OutputLosses
    from edgekit.verbs.quantization.quantiser import Settings

FEW_SAMPLES = 32
_SAMPLES_FOR_LAYERS = 16
_LARGEST_MODEL = (2 << 30) - (16 << 20)
"""The most bytes of an ONNX model in a single file."""


@dataclass(frozen=True)
class QuantizeRequest:
    source: ModelSource
    out: Path
    settings: Settings
    calibration: Sequence[InputFile] = ()
    random: int = 0
    """The number of samples of noise to calibrate with instead, if only size and speed matter."""
    accept_noise: bool = False
    labels: Path | None = None


@dataclass(frozen=True)
class QuantizeReport(Report):
    model: str
    out: Path
    samples: int
    calibrated_with_noise: bool
    settings: Settings
    bytes_before: int
    bytes_after: int
    losses: OutputLosses
    layers: tuple[LayerLoss, ...]
    """The layers, those with the largest loss first."""
    in_float: tuple[str, ...]
    """Operators that have no integer form in the result."""
    samples_file: Path | None
    """A file with a few samples, of which builds make reference vectors; None without samples."""

    def headline(self) -> str:
        sizes = f"{size(self.bytes_after)}, was {size(self.bytes_before)}"
        accuracy = self.losses.accuracy
        cost = (
            ""
            if accuracy is None
            else f"; accuracy {percent(accuracy.after)}, was {percent(accuracy.before)}"
        )
        return f"{self.model} in int8: {sizes}{cost}"


def quantize(request: QuantizeRequest, events: Events = SILENT) -> QuantizeReport:
    """Quantise the model and write `request.out` in one step at the end."""
    check_quantiser(request.source)
    if request.calibration and request.random:
        raise UsageError(
            "a model is calibrated with samples or with noise, not with both",
            hint=f"leave {option('random')} away, or {option('calibrate')}",
        )
    if request.out.exists() and request.out.samefile(request.source.path):
        raise UsageError(
            f"{request.out} is the float model itself, and would be lost",
            hint=f"name another file with {option('out')}",
        )
    if not request.calibration and not request.random:
        raise UsageError(
            "quantisation needs samples of what the model will see",
            hint=f"add {option('calibrate')} with a folder or an .npz; {option('random', 'N')} "
            "uses noise instead, whose "
            "numbers mean nothing",
        )
    from edgekit.bundle.manifest import InputEntry
    from edgekit.models.known_samples import samples_file, write_known_samples
    from edgekit.models.onnx.binding import bind
    from edgekit.models.onnx.files import read_model
    from edgekit.verbs.quantization.calibration import Calibration, calibration_from
    from edgekit.verbs.quantization.loss import compare_outputs, layer_losses
    from edgekit.verbs.quantization.quantiser import (
        as_stored,
        load,
        operators_in_float,
        prepared,
        quantised,
    )

    with events.stage("read the model"), held(request.source):
        model = read_model(request.source.path)
        if model.ByteSize() > _LARGEST_MODEL:
            raise UsageError(
                "the model is larger than the quantiser takes", hint="2 GiB is the limit"
            )
        # The result is a model again, without the ends, which a project declares for either.
        inputs = bind(model.graph, replace(request.source, ends=NO_ENDS)).inputs
        own = request.source.ends.preprocess
        on_host = {name: replace(preprocess, on="host") for name, preprocess in own.items()}
        entries = tuple(InputEntry(spec, on_host.get(spec.name)) for spec in inputs)
    with events.stage("look at the samples") as stage:
        if request.random:
            samples = Calibration((), entries, None, random=request.random)
            events.warn("calibrated with noise: the numbers of the result mean nothing")
        else:
            samples = calibration_from(
                request.calibration, entries, accept_noise=request.accept_noise
            )
            if len(samples) < FEW_SAMPLES:
                events.warn(f"{counted(len(samples), 'sample')} are few: ranges may be cut")
        labels = _labels(request.labels, len(samples)) if request.labels else None
        stage.result = counted(len(samples), "sample")
    with (
        storage_errors("quantise", request.out),
        tempfile.TemporaryDirectory(prefix="edgekit-quantize-") as folder,
    ):
        scratch = Path(folder)
        with events.stage("prepare the model"):
            ready = prepared(model, inputs, scratch)
            float_model = load(ready)
        with events.stage("calibrate and quantise", total=len(samples)) as stage:
            small = quantised(ready, samples, request.settings, scratch, stage)
        with_float_ends = load(scratch / "quantised.onnx")
        with events.stage("compare the outputs", total=len(samples)) as stage:
            losses = compare_outputs(float_model, with_float_ends, samples, labels, stage)
        looked_at = min(len(samples), _SAMPLES_FOR_LAYERS)
        with events.stage("compare the layers", total=looked_at) as stage:
            layers = layer_losses(
                float_model, with_float_ends, islice(iter(samples), looked_at), stage
            )
        data = small.SerializeToString()
        stored = (as_stored(sample, with_float_ends, small) for sample in samples)
        # A build makes noise by itself.
        count = 0 if request.random else len(samples)
        count = write_known_samples(request.out, stored if count else iter(()), count)
        write_atomically(request.out, data)
    return QuantizeReport(
        request.source.name,
        request.out,
        len(samples),
        bool(request.random),
        request.settings,
        model.ByteSize(),
        len(data),
        losses,
        layers,
        operators_in_float(with_float_ends),
        samples_file(request.out) if count else None,
    )


def _labels(path: Path, samples: int) -> Array:
    import numpy as np

    from edgekit.base.arrays import NPY_ERRORS, read_array, unreadable

    try:
        if path.suffix.lower() == ".npy":
            found = read_array(path)
        else:
            found = np.array([int(line) for line in path.read_text("utf-8").split()])
    except NPY_ERRORS as error:
        raise unreadable(path, error) from error
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InputError(
            f"{path} is not a list of class numbers",
            hint="write one whole number a sample, in the order of the samples",
        )
    if len(found) != samples:
        raise InputError(
            f"{path} has {counted(len(found), 'label')} for {counted(samples, 'sample')}",
            hint="write one whole number a sample; files of a folder are taken in order of name",
        )
    return np.asarray(found, "int64")


def wants_symmetric(board: Board) -> bool:
    """Return whether a library that the board may offload to needs zero points of zero."""
    own = own_backends()
    return any(own[name].symmetric_int8 for name in board.offload.allowed if name in own)


def check_quantiser(source: ModelSource) -> None:
    """Refuse what can't be quantised, before anything heavy is imported."""
    if source.format != "onnx":
        raise UsageError(
            f"{source.path.name} is not an ONNX model",
            hint="quantise TFLite models where they are converted, and export PyTorch models "
            "to ONNX first",
        )
    from importlib.util import find_spec

    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            raise MissingToolError(
                f"quantisation needs the Python package {package}",
                hint="pip install 'edgekit[onnx]'",
            )
