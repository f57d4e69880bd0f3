"""Runs a bundle on a device, and summarises and writes its outputs."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import made_directory, storage_errors, write_atomically
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.report import Report, nanoseconds_of
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import counted
from edgekit.devices.carried import CarriedState, run_in_order

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.samples import Sample
    from edgekit.devices.base import RunsBundles, Session
    from edgekit.models.ends.geometry import Placement
    from edgekit.models.ends.reading import Meaning
    from edgekit.models.preprocess import Preprocess

_UNSAFE_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_FILE_NAME = 80


@dataclass(frozen=True)
class Score:
    index: int
    value: float
    """The score; of a quantised output, the real number."""


@dataclass(frozen=True)
class OutputSummary:
    """Statistics of an output. `minimum`, `maximum` and `mean` are of the finite elements, if any.

    Quantised outputs are summarised as the real numbers that they represent.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None
    maximum: float | None
    mean: float | None
    nonfinite: int
    top: tuple[Score, ...]
    """The highest scores, if the output is a vector."""


@dataclass(frozen=True)
class SampleRun:
    name: str
    seconds: float
    """Seconds of the inference alone."""
    outputs: tuple[OutputSummary, ...]
    files: tuple[Path, ...]
    meaning: Meaning | None = None
    """What the outputs mean, if the project's [postprocess] says it."""


@dataclass(frozen=True)
class RunReport(Report):
    bundle: Path
    board: str
    device: str
    measured_by: Measurer
    """What the times come from; only hardware's are the board's own."""
    reference: bool
    """True if the bundle's own reference input was run because no other was given."""
    samples: tuple[SampleRun, ...]

    def headline(self) -> str:
        count = f"{len(self.samples)} sample{'s' * (len(self.samples) != 1)}"
        return f"{self.bundle.name} on {self.device}: {count}"

    @property
    def nanoseconds(self) -> Array:
        """The duration of each inference in whole nanoseconds, to be plotted."""
        return nanoseconds_of(sample.seconds for sample in self.samples)


@dataclass(frozen=True)
class RunPlan:
    """What is shown and written of a run."""

    out: Path | None = None
    """The place for the outputs: an .npz for one sample, or a folder of .npy files or of one folder
    per sample."""
    draw: Path | None = None
    """The place for the images with what was found in them: a .png for one, or a folder."""
    top: int = 5
    """The number of highest elements that a report has of a vector."""
    keep_state: bool = True
    """Whether each sample goes on with the state that the one before left, or begins with the first
    values."""


def run(
    bundle: Bundle,
    device: RunsBundles,
    plan: RunPlan = RunPlan(),
    *,
    samples: Iterable[Sample] | None = None,
    total: int = 1,
    events: Events = SILENT,
) -> RunReport:
    """Run every sample, or the reference input, and write each output at once."""
    out, draw, top = plan.out, plan.draw, plan.top
    if draw is not None:
        _check_drawing(bundle, draw, samples is not None, total)
    if out is not None and out.suffix == ".npz" and total > 1:
        raise UsageError(
            f"{counted(total, 'sample')} do not fit into one file {out}", hint="give -o a folder"
        )
    specs = [entry.spec for entry in bundle.manifest.outputs]
    done: list[SampleRun] = []
    with (
        device.opened(bundle, events=events) as session,
        events.stage(f"run on {device.name}", total) as stage,
    ):
        state = CarriedState(bundle, kept=plan.keep_state)
        for sample, outputs, seconds in _results(bundle, session, samples, state):
            name = sample.name
            summaries = tuple(summarise_output(outputs[spec.name], spec, top) for spec in specs)
            files: tuple[Path, ...] = ()
            stem = f"{len(done):04d}-{_file_name(Path(name).stem)}"
            if out is not None:
                files = write_outputs(outputs, out if total == 1 else out / stem)
            seen = _look(bundle, sample)
            found = read_meaning(bundle, outputs, seen)
            if draw is not None:
                place = draw if draw.suffix == ".png" else draw / f"{stem}.png"
                files += _draw(place, sample, found, outputs, seen)
            done.append(SampleRun(name, seconds, summaries, files, found))
            stage.advance(1, name)
        measured_by = session.measured_by
    board = bundle.manifest.board.name
    return RunReport(bundle.path, board, device.name, measured_by, samples is None, tuple(done))


def _results(
    bundle: Bundle, session: Session, samples: Iterable[Sample] | None, state: CarriedState
) -> Iterator[tuple[Sample, Mapping[str, Array], float]]:
    from edgekit.bundle.samples import Sample

    given: list[Sample] = []

    def inputs() -> Iterator[Mapping[str, Array]]:
        if samples is None:
            chosen: Iterable[Sample] = [Sample("the reference input", bundle.reference_inputs())]
        else:
            chosen = samples
        for sample in chosen:
            # Only what a report needs of it, so that one sample is in memory.
            given.append(replace(sample, inputs={}))
            yield sample.inputs

    with contextlib.closing(run_in_order(session, inputs(), state)) as results:
        for number, result in enumerate(results):
            yield given[number], result.outputs, result.seconds


def read_meaning(
    bundle: Bundle, outputs: Mapping[str, Array], seen: tuple[Preprocess, Placement] | None
) -> Meaning | None:
    """Return what outputs mean; None if the bundle does not say it."""
    if bundle.manifest.postprocess is None:
        return None
    from edgekit.models.ends.reading import meaning

    return meaning(bundle.manifest.postprocess, outputs, seen and seen[1])


def _look(bundle: Bundle, sample: Sample) -> tuple[Preprocess, Placement] | None:
    """Return how the image of a sample lies in the picture that the program takes."""
    if bundle.manifest.postprocess is None or len(sample.images) != 1:
        return None
    from edgekit.models.ends.geometry import placement
    from edgekit.models.images import open_image

    ((name, path),) = sample.images.items()
    (entry,) = (one for one in bundle.manifest.inputs if one.spec.name == name)
    if entry.preprocess is None or entry.preprocess.on != "board":
        return None
    height, width, _ = entry.spec.shape
    image = open_image(path)
    place = placement(entry.preprocess, (image.height, image.width), (height, width))
    return entry.preprocess, place


def _check_drawing(bundle: Bundle, draw: Path, has_samples: bool, total: int) -> None:
    if bundle.manifest.postprocess is None:
        raise UsageError(
            f"{bundle.path.name} says nothing about what its outputs mean",
            hint="declare [postprocess] in edgekit.toml, and build again",
        )
    if not has_samples:
        raise UsageError(
            "there is no image to draw into", hint=f"name one with {option('input', 'photo.jpg')}"
        )
    if draw.suffix == ".png" and total > 1:
        raise UsageError(
            f"{counted(total, 'image')} do not fit into one file {draw}", hint="name a folder"
        )


def _draw(
    place: Path,
    sample: Sample,
    found: Meaning | None,
    outputs: Mapping[str, Array],
    seen: tuple[Preprocess, Placement] | None,
) -> tuple[Path]:
    from edgekit.models.ends.drawing import draw

    if found is None or seen is None:
        raise UsageError(
            f"nothing can be drawn into {sample.name}, which the program did not take as an image",
            hint="name one .png or .jpg for an input with [preprocess]",
        )
    (path,) = sample.images.values()
    drawn = draw(path, found, outputs, *seen)
    with storage_errors("draw", place), made_directory(place.parent):
        write_atomically(place, drawn)
    return (place,)


def summarise_output(array: Array, spec: TensorSpec, top: int) -> OutputSummary:
    import numpy as np

    values = real_values(array, spec)
    finite = values[np.isfinite(values)]
    is_vector = sum(extent != 1 for extent in array.shape) == 1 and array.size > 1
    scores: tuple[Score, ...] = ()
    if is_vector and top > 0 and array.dtype.kind != "b":
        flat = values.reshape(-1)
        order = np.argsort(-np.where(np.isnan(flat), -np.inf, flat), kind="stable")[:top]
        scores = tuple(Score(int(i), float(flat[i])) for i in order)
    return OutputSummary(
        name=spec.name,
        dtype=spec.dtype,
        shape=array.shape,
        minimum=float(finite.min()) if finite.size else None,
        maximum=float(finite.max()) if finite.size else None,
        mean=float(finite.mean()) if finite.size else None,
        nonfinite=int(values.size - finite.size),
        top=scores,
    )


def real_values(array: Array, spec: TensorSpec) -> Array:
    """Return the numbers that an output stands for; those of a quantised one are scaled."""
    import numpy as np

    values = array.astype(np.float64)
    quantization = spec.quantization
    if quantization is None:
        return values
    along = [1] * array.ndim
    if len(quantization.scales) > 1:
        along[quantization.axis or 0] = len(quantization.scales)
    zero_points = np.array(quantization.zero_points, np.float64).reshape(along)
    scales = np.array(quantization.scales, np.float64).reshape(along)
    return np.asarray((values - zero_points) * scales)


def write_outputs(outputs: Mapping[str, Array], out: Path) -> tuple[Path, ...]:
    """Write each output to a .npy in the folder `out`, or all to one .npz under their own names.
    Files are always whole."""
    arrays = {name: _npy(array) for name, array in outputs.items()}
    with storage_errors("write the outputs", out):
        if out.suffix == ".npz":
            buffer = io.BytesIO()
            # Not np.savez, whose own parameters are names that an output may have.
            with zipfile.ZipFile(buffer, "w") as archive:
                for name, content in arrays.items():
                    archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content)
            with made_directory(out.parent):
                write_atomically(out, buffer.getvalue())
            return (out,)
        if out.is_file():
            raise UsageError(
                f"{out} is a file", hint="give -o a folder, or a name that ends in .npz"
            )
        files = []
        with made_directory(out):
            for name, content in zip(_file_names(list(arrays)), arrays.values(), strict=True):
                write_atomically(out / f"{name}.npy", content)
                files.append(out / f"{name}.npy")
        return tuple(files)


def _npy(array: Array) -> bytes:
    """Return the bytes of a .npy. It has no bfloat16; float32 holds all its values."""
    import numpy as np

    buffer = io.BytesIO()
    storable = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    np.save(buffer, storable, allow_pickle=False)
    return buffer.getvalue()


def _file_names(names: list[str]) -> list[str]:
    """Return safe and distinct file names that resemble the outputs' names."""
    safe = [_file_name(name) for name in names]
    clash = len({name.lower() for name in safe}) < len(safe) or "" in safe
    return [f"{i}-{name}" for i, name in enumerate(safe)] if clash else safe


def _file_name(name: str) -> str:
    return _UNSAFE_IN_FILE_NAMES.sub("_", name)[:_LONGEST_FILE_NAME].strip("-")
