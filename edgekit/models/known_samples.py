"""Samples next to a model's file: `edgekit quantize` calibrated with them, or the user made them.

`net.samples.npz` belongs to `net.onnx`. It holds an array for each input, by the input's name, with
the samples along the first axis. A build turns them into reference vectors. An input that became
integers (`--ends int8`) takes its samples as the floats of the file too.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from edgekit.base.arrays import NPY_ERRORS, Array, as_spec_dtype, numpy_dtype, unreadable
from edgekit.base.errors import InputError
from edgekit.base.files import sha256_file, storage_errors, write_atomically
from edgekit.base.npy import NpzEntry, open_npz
from edgekit.base.tensors import TensorSpec
from edgekit.models.oracle_ends import quantised

MOST_SAMPLES = 3
LARGEST_FILE = 16 << 20
"""The most bytes that are written; larger files are read up to LARGEST_READ."""
LARGEST_READ = 256 << 20
_HINT = "remove the file, or write it again with an array for each input, one row a sample"


def samples_file(model: Path) -> Path:
    return model.with_suffix(".samples.npz")


def samples_identity(model: Path) -> str:
    """Return the SHA-256 of the samples next to the model, for a build's key; empty without any."""
    file = samples_file(model)
    with storage_errors("read the samples", file):
        return sha256_file(file) if file.is_file() else ""


def count_known_samples(model: Path, specs: Sequence[TensorSpec]) -> int:
    """Return how many samples are next to the model; InputError if they do not fit the inputs."""
    if not specs or not samples_file(model).is_file():
        return 0
    with _opened(model) as entries:
        counts = {_count(samples_file(model), entries, spec) for spec in specs}
    if len(counts) != 1:
        raise InputError(
            f"{samples_file(model)} holds different numbers of samples: {sorted(counts)}",
            hint="every array needs one row a sample",
        )
    return counts.pop()


def read_known_sample(model: Path, specs: Sequence[TensorSpec], index: int) -> dict[str, Array]:
    """Read one sample that `count_known_samples` counted; InputError if it is not finite."""
    with _opened(model) as entries:
        return {spec.name: _read(samples_file(model), entries, spec, index) for spec in specs}


def write_known_samples(model: Path, samples: Iterator[Mapping[str, Array]], count: int) -> int:
    """Write a few of `count` samples next to the model, and return how many. Older samples are
    replaced; none are written if a single one is too large."""
    file = samples_file(model)
    wanted, kept, room = set(spread(count)), list[Mapping[str, Array]](), LARGEST_FILE
    for index, sample in enumerate(samples):
        size = sum(array.nbytes for array in sample.values())
        if index in wanted and size <= room:
            kept.append(sample)
            room -= size
        if index >= max(wanted, default=0):
            break
    with storage_errors("write the samples", file):
        if not kept:
            file.unlink(missing_ok=True)
            return 0
        buffer = io.BytesIO()
        stacked = {name: np.stack([sample[name] for sample in kept]) for name in kept[0]}
        np.savez(buffer, **stacked)  # type: ignore[arg-type]
        write_atomically(file, buffer.getvalue())
    return len(kept)


def spread(count: int) -> list[int]:
    """Return the indices of the samples to take: the first, the last, and some between."""
    if count <= MOST_SAMPLES:
        return list(range(count))
    return [index * (count - 1) // (MOST_SAMPLES - 1) for index in range(MOST_SAMPLES)]


@contextmanager
def _opened(model: Path) -> Iterator[Mapping[str, NpzEntry]]:
    file = samples_file(model)
    try:
        with open_npz(file) as entries:
            yield entries
    except NPY_ERRORS as error:
        raise unreadable(file, error) from error


def _count(file: Path, entries: Mapping[str, NpzEntry], spec: TensorSpec) -> int:
    if spec.name not in entries:
        raise InputError(f"{file} holds no array for the input {spec.name!r}", hint=_HINT)
    header = entries[spec.name].header()
    if entries[spec.name].file_bytes > LARGEST_READ:
        raise InputError(f"{spec.name!r} in {file} is too large to be read at once", hint=_HINT)
    bare_bfloat16 = spec.dtype == "bfloat16" and header.dtype == np.dtype("V2")
    is_float = spec.quantization is not None and header.dtype.kind == "f"
    is_type = bare_bfloat16 or is_float or header.dtype.newbyteorder("=") == numpy_dtype(spec.dtype)
    if not is_type or not header.shape or not spec.admits(header.shape[1:]):
        wanted = ", ".join(["N", *filter(None, [spec.shape_in_words()[1:-1]])])
        raise InputError(
            f"{file} holds {header.dtype.name}{list(header.shape)}, and samples of the input "
            f"{spec.name!r} are {spec.dtype}[{wanted}]",
            hint=_HINT,
        )
    return header.shape[0]


def _read(file: Path, entries: Mapping[str, NpzEntry], spec: TensorSpec, index: int) -> Array:
    array = np.array(as_spec_dtype(entries[spec.name].read(), spec.dtype)[index])
    if not np.isfinite(array.astype(np.float64)).all():
        raise InputError(f"{file} holds NaN or infinity for the input {spec.name!r}", hint=_HINT)
    return quantised(array, spec) if array.dtype != numpy_dtype(spec.dtype) else array
