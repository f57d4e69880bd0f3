"""Reads calibration data: a user's samples, which must not be noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from edgekit.base.arrays import NPY_ERRORS, Array, numpy_dtype, read_array, unreadable
from edgekit.base.errors import InputError
from edgekit.base.npy import NpyError, open_npz, read_npy_header
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.manifest import InputEntry
from edgekit.bundle.samples import InputFile, count_samples, iterate_samples
from edgekit.models.inputs import reference_inputs

LARGEST_STACK = 4 << 30
"""The most bytes of one file that holds all samples: it is read at once."""

_EXTENT_OF_IMAGES = 8
"""The length of an axis from which on its neighbours are expected to be alike."""
_CORRELATION_OF_NOISE = 0.08
_LOOKED_AT = 16
"""The number of samples that are checked for noise."""


@dataclass(frozen=True)
class Calibration:
    """A source of samples, which can be read repeatedly, one at a time."""

    files: tuple[InputFile, ...]
    inputs: tuple[InputEntry, ...]
    stack: Mapping[str, Array] | None
    """One array per input with samples along the first axis, if a file holds them so."""
    random: int = 0
    """The number of samples of noise to use instead, if only size and speed matter."""
    seed: int = 0

    def __len__(self) -> int:
        if self.random:
            return self.random
        if self.stack is not None:
            return len(next(iter(self.stack.values())))
        return count_samples(self.files, self.inputs)

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        if self.random:
            yield from self._noise()
        elif self.stack is not None:
            for index in range(len(self)):
                yield {
                    entry.spec.name: self.stack[entry.spec.name][index].reshape(entry.spec.shape)
                    for entry in self.inputs
                }
        else:
            for sample in iterate_samples(self.files, self.inputs):
                yield sample.inputs

    def _noise(self) -> Iterator[Mapping[str, Array]]:
        specs = [entry.spec for entry in self.inputs]
        generator = np.random.default_rng(self.seed)
        for number in range(self.random):
            # Integers and booleans are what a build would draw: in range for what they choose.
            sample = reference_inputs(
                [spec for spec in specs if not _is_real(spec)], self.seed + number
            )
            for spec in specs:
                if _is_real(spec):
                    values = generator.standard_normal(spec.shape)
                    sample[spec.name] = np.asarray(values, "float32").astype(
                        numpy_dtype(spec.dtype)
                    )
            yield sample


def _is_real(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def calibration_from(
    files: Sequence[InputFile], inputs: Sequence[InputEntry], *, accept_noise: bool = False
) -> Calibration:
    """Find samples in a folder, files or an .npz; InputError if they fit no input or are noise."""
    calibration = Calibration(tuple(files), tuple(inputs), _stack(files, inputs))
    if not len(calibration):
        raise InputError(
            "the calibration data hold no sample",
            hint="give a folder of images or .npy files, or an .npz with samples along the "
            "first axis of each array",
        )
    if not accept_noise:
        _refuse_noise(calibration)
    return calibration


def _stack(files: Sequence[InputFile], inputs: Sequence[InputEntry]) -> Mapping[str, Array] | None:
    """Read all samples of one .npz or .npy whose arrays hold several samples.

    Its arrays have one axis more than the inputs, or more than one sample along a batch of one.
    """
    if len(files) != 1 or files[0].path.suffix.lower() not in (".npz", ".npy"):
        return None
    path = files[0].path
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > LARGEST_STACK:
            raise InputError(
                f"{path} is too large to be read at once",
                hint="calibrate with fewer samples, or with a folder of files",
            )
        if path.suffix.lower() == ".npy":
            if len(inputs) != 1:
                return None
            with path.open("rb") as stream:
                shape = read_npy_header(stream).shape
            if not _is_stacked(shape, inputs[0].spec):
                return None
            arrays = {inputs[0].spec.name: read_array(path)}
        else:
            arrays = _arrays(path, inputs)
    except NPY_ERRORS as error:
        raise unreadable(path, error) from error
    if len(arrays) != len(inputs) or not all(
        _is_stacked(arrays[entry.spec.name].shape, entry.spec) for entry in inputs
    ):
        return None  # a single sample: read and checked like any other
    counts = {len(array) for array in arrays.values()}
    if len(counts) > 1:
        raise InputError(
            f"{path} holds different numbers of samples: {sorted(counts)}",
            hint="every array needs one row a sample",
        )
    return {
        entry.spec.name: _as_input(arrays[entry.spec.name], entry.spec, path) for entry in inputs
    }


def _arrays(path: Path, inputs: Sequence[InputEntry]) -> dict[str, Array]:
    """Read the arrays of an .npz file that are inputs, by the inputs' names."""
    found = {}
    with open_npz(path) as entries:
        for entry in inputs:
            key = _key(list(entries), entry.spec.name, len(inputs))
            if key and entries[key].file_bytes > LARGEST_STACK:
                raise NpyError(f"{key} is too large to be read at once")
            if key:
                found[entry.spec.name] = entries[key].read()
    return found


def _key(keys: Sequence[str], name: str, inputs: int) -> str:
    if name in keys:
        return name
    return keys[0] if inputs == 1 and len(keys) == 1 else ""


def _is_stacked(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    inside = spec.shape[1:] if spec.shape[:1] == (1,) else None
    if not shape:
        return False
    return shape[1:] == spec.shape or (shape[1:] == inside and shape[0] != 1)


def _as_input(array: Array, spec: TensorSpec, path: Path) -> Array:
    if array.dtype.name != spec.dtype:
        raise InputError(
            f"{path} holds {array.dtype.name}, and the input {spec.name!r} takes {spec.dtype}",
            hint=f'convert it: array.astype("{spec.dtype}")',
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"{path} holds NaN or infinity for the input {spec.name!r}",
            hint="leave those samples out: ranges can't be made of them",
        )
    return array


def _refuse_noise(calibration: Calibration) -> None:
    """Raise InputError for noise, whose ranges differ from those of real inputs."""
    looked_at = list(islice(iter(calibration), _LOOKED_AT))
    for entry in calibration.inputs:
        if looks_like_noise([sample[entry.spec.name] for sample in looked_at]):
            raise InputError(
                f"the calibration data for {entry.spec.name!r} look like noise: neighbouring "
                "values have nothing to do with each other",
                hint="calibrate with samples of what the model will see; if these are such, "
                f"say {option('accept-noise')}",
            )


def looks_like_noise(samples: Sequence[Array]) -> bool:
    """Return whether neighbours differ along every axis along which images are smooth.

    Small or constant arrays never look like noise.
    """
    if not samples:
        return False
    axes = [axis for axis, extent in enumerate(samples[0].shape) if extent >= _EXTENT_OF_IMAGES]
    values = [np.asarray(sample, "float64") for sample in samples]
    powers = [float(value.var()) for value in values]
    if len(axes) < 2 or not all(powers):
        return False
    for axis in axes:
        correlations = [
            _correlation(value - value.mean(), axis) / power
            for value, power in zip(values, powers, strict=True)
        ]
        if abs(float(np.mean(correlations))) >= _CORRELATION_OF_NOISE:
            return False
    return True


def _correlation(centred: Array, axis: int) -> float:
    ahead = np.take(centred, range(1, centred.shape[axis]), axis)
    behind = np.take(centred, range(centred.shape[axis] - 1), axis)
    return float((ahead * behind).mean())
