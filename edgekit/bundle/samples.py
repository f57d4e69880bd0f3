"""Reads a user's files as samples: .npy, .npz and images.

No file is trusted. All are checked against the model's inputs before their data is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.base.arrays import (
    NPY_ERRORS,
    Array,
    as_spec_dtype,
    numpy_dtype,
    refuse_objects,
    unreadable,
)
from edgekit.base.errors import InputError
from edgekit.base.npy import NpyError, NpyHeader, open_npz, read_npy, read_npy_header
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec
from edgekit.base.varying import sizes_of
from edgekit.base.wording import counted, did_you_mean, natural
from edgekit.models.images import IMAGE_SUFFIXES, check_image, load_image
from edgekit.models.preprocess import Preprocess, example_toml

if TYPE_CHECKING:
    from edgekit.bundle.manifest import InputEntry

SUFFIXES = (".npy", ".npz", *IMAGE_SUFFIXES)


@dataclass(frozen=True)
class InputFile:
    """A file, folder or pattern of a user, and the input that it is for."""

    name: str | None
    path: Path


@dataclass(frozen=True)
class Sample:
    """The inputs of one inference."""

    name: str
    """The name of its file."""
    inputs: Mapping[str, Array]
    images: Mapping[str, Path] = field(default_factory=dict)
    """The image files among them, by input name."""


@dataclass(frozen=True)
class _Part:
    """The place of one input's value for one sample."""

    path: Path
    key: str | None
    """The name in an .npz."""


def parse_input_argument(text: str) -> InputFile:
    """Parse "image=cat.jpg", or "cat.npy" for a model with one input."""
    name, separator, path = text.partition("=")
    if not separator or Path(text).exists():
        return InputFile(None, Path(text))
    if not name or not path:
        raise InputError(
            f"the input {text!r} is not a name and a file",
            hint=f"write {option('input', 'name=file.npy')}",
        )
    return InputFile(name, Path(path))


def load_samples(
    files: Sequence[InputFile], inputs: Sequence[InputEntry], *, allow_nonfinite: bool = False
) -> tuple[Sample, ...]:
    """Read all samples at once. Several files for one input are several samples."""
    return tuple(iterate_samples(files, inputs, allow_nonfinite=allow_nonfinite))


def iterate_samples(
    files: Sequence[InputFile], inputs: Sequence[InputEntry], *, allow_nonfinite: bool = False
) -> Iterator[Sample]:
    """Read one sample at a time. The pairing and the heads of all files are checked before the
    first is read."""
    entries = {entry.spec.name: entry for entry in inputs}
    parts = _assign(_expand(files), entries)
    count = _count_samples(parts, entries)
    for name, found in parts.items():
        for part in found:
            _check_head(part, entries[name])

    def read() -> Iterator[Sample]:
        for index in range(count):
            chosen = {name: found[index % len(found)] for name, found in parts.items() if found}
            arrays = {
                name: _load(part, entries[name], allow_nonfinite) for name, part in chosen.items()
            }
            sizes_of([entry.spec for entry in inputs], arrays)
            several = [chosen[name].path.name for name, found in parts.items() if len(found) > 1]
            named = several or [part.path.name for part in chosen.values()]
            images = {
                name: part.path
                for name, part in chosen.items()
                if part.path.suffix.lower() in IMAGE_SUFFIXES
            }
            yield Sample(", ".join(dict.fromkeys(named)), arrays, images)

    return read()


def count_samples(files: Sequence[InputFile], inputs: Sequence[InputEntry]) -> int:
    entries = {entry.spec.name: entry for entry in inputs}
    return _count_samples(_assign(_expand(files), entries), entries)


def _expand(files: Sequence[InputFile]) -> list[InputFile]:
    expanded = []
    for file in files:
        found = [file.path]
        if file.path.is_dir():
            found = [p for p in file.path.iterdir() if p.suffix.lower() in SUFFIXES]
            if not found:
                raise InputError(
                    f"the folder {file.path} holds no input files",
                    hint=f"edgekit reads {', '.join(SUFFIXES)}",
                )
        elif not file.path.exists() and any(c in "*?[" for c in str(file.path)):
            root = Path(file.path.anchor)
            found = list(root.glob(str(file.path.relative_to(root))))
            if not found:
                raise InputError(
                    f"no file matches {file.path}", hint="check the pattern, and quote it"
                )
        expanded += [InputFile(file.name, path) for path in sorted(found, key=natural)]
    return expanded


def _assign(
    files: Sequence[InputFile], entries: Mapping[str, InputEntry]
) -> dict[str, list[_Part]]:
    parts: dict[str, list[_Part]] = {name: [] for name in entries}
    for file in files:
        if file.path.suffix.lower() not in SUFFIXES:
            raise InputError(
                f"{file.path} has a suffix that names no input format edgekit reads",
                hint=f"edgekit reads {', '.join(SUFFIXES)}",
            )
        if file.name is not None and file.name not in entries:
            raise _unknown_input(file.name, entries)
        if file.path.suffix.lower() == ".npz":
            for name, key in _keys(file, entries).items():
                parts[name].append(_Part(file.path, key))
        else:
            parts[file.name or _only_input(file.path, entries)].append(_Part(file.path, None))
    return parts


def _keys(file: InputFile, entries: Mapping[str, InputEntry]) -> dict[str, str]:
    """Return which array of an .npz goes into which input."""
    try:
        with open_npz(file.path) as entries_in_file:
            keys = list(entries_in_file)
    except NPY_ERRORS as error:
        raise unreadable(file.path, error) from error
    if file.name is not None:
        if file.name in keys:
            return {file.name: file.name}
        if len(keys) == 1:
            return {file.name: keys[0]}
        raise InputError(
            f"{file.path} holds no array named {file.name!r}",
            hint=did_you_mean(file.name, keys, f"it holds {_listed(keys)}"),
        )
    for key in keys:
        if key not in entries:
            raise _unknown_input(key, entries, where=f" of {file.path}")
    return {key: key for key in keys}


def _only_input(path: Path, entries: Mapping[str, InputEntry]) -> str:
    others = [name for name, entry in entries.items() if entry.spec.state is None]
    if len(others) == 1:
        return others[0]
    raise InputError(
        f"{path} does not say which input it is for",
        hint=f"write {option('input', f'NAME={path}')}; the model's inputs are {_listed(entries)}",
    )


def _count_samples(parts: Mapping[str, Sequence[_Part]], entries: Mapping[str, InputEntry]) -> int:
    missing = [
        name for name, found in parts.items() if not found and entries[name].spec.state is None
    ]
    if missing:
        spec = entries[missing[0]].spec
        raise InputError(
            f"no file was given for the input {_listed(missing)}",
            hint=f"add {option('input', f'{spec.name}=FILE')} with {spec}",
        )
    count = max((len(found) for found in parts.values()), default=1)
    for name, found in parts.items():
        if found and len(found) not in (1, count):
            raise InputError(
                f"the input {name!r} has {counted(len(found), 'file')} where another has {count}",
                hint="give every input one file a sample, or one file for all samples",
            )
    return count


def _check_head(part: _Part, entry: InputEntry) -> None:
    """Refuse a file that can't be the input, as far as its first bytes tell."""
    if part.path.suffix.lower() in IMAGE_SUFFIXES:
        _preprocess(part, entry)
        check_image(part.path)
        return
    try:
        if part.key is None:
            with part.path.open("rb") as stream:
                _check_header(read_npy_header(stream), part, entry.spec)
        else:
            with open_npz(part.path) as entries:
                _check_header(entries[part.key].header(), part, entry.spec)
    except NPY_ERRORS as error:
        raise unreadable(part.path, error) from error


def _preprocess(part: _Part, entry: InputEntry) -> Preprocess:
    if entry.preprocess is None:
        raise InputError(
            f"{part.path} is an image, and nothing says how an image becomes the input "
            f"{entry.spec.name!r}",
            hint="declare it in edgekit.toml, then build again if this is about a bundle:\n"
            + example_toml(entry.spec),
        )
    return entry.preprocess


def _load(part: _Part, entry: InputEntry, allow_nonfinite: bool) -> Array:
    spec = entry.spec
    if part.path.suffix.lower() in IMAGE_SUFFIXES:
        return load_image(part.path, spec, _preprocess(part, entry))
    array = _read_npy(part, spec)
    if not allow_nonfinite:
        _refuse_nonfinite(array, part, spec)
    return array


def _read_npy(part: _Part, spec: TensorSpec) -> Array:
    try:
        if part.key is None:
            with part.path.open("rb") as stream:
                _check_header(read_npy_header(stream), part, spec)
                stream.seek(0)
                array = read_npy(stream)
        else:
            with open_npz(part.path) as entries:
                if part.key not in entries:
                    raise NpyError(f"it no longer holds {part.key!r}")
                _check_header(entries[part.key].header(), part, spec)
                array = entries[part.key].read()
    except NPY_ERRORS as error:
        raise unreadable(part.path, error) from error
    return np.asarray(as_spec_dtype(array, spec.dtype), order="C")


def _check_header(header: NpyHeader, part: _Part, spec: TensorSpec) -> None:
    """Refuse another dtype or shape than the input's, before any memory is taken for the data."""
    where = str(part.path) if part.key is None else f"{part.key} in {part.path}"
    refuse_objects(where, header.dtype)
    expected = numpy_dtype(spec.dtype)
    bare_bfloat16 = spec.dtype == "bfloat16" and header.dtype == np.dtype("V2")
    if header.dtype.newbyteorder("=") != expected and not bare_bfloat16:
        raise InputError(
            f"{where} holds {header.dtype.name}, and the input {spec.name!r} takes {spec.dtype}",
            hint=_conversion(spec, header.dtype),
        )
    if not spec.admits(header.shape):
        raise InputError(
            f"{where} has shape {list(header.shape)}, and the input {spec.name!r} takes "
            f"{spec.shape_in_words()}",
            hint=_reshaping(spec, header.shape),
        )


def _conversion(spec: TensorSpec, found: np.dtype[np.generic]) -> str:
    if spec.quantization is not None and found.kind == "f":
        scale, zero = spec.quantization.scales[0], spec.quantization.zero_points[0]
        return f"the input is quantised: store round(value / {scale:g}) + {zero} as {spec.dtype}"
    return f'convert it: numpy.save(path, array.astype("{spec.dtype}"))'


def _reshaping(spec: TensorSpec, found: tuple[int, ...]) -> str:
    if spec.admits((1, *found)):
        return "add the batch dimension: numpy.save(path, array[None])"
    if sorted(found) == sorted(spec.shape):
        return "the dimensions are in another order: see numpy.transpose"
    if len(found) == len(spec.shape) and spec.varying:
        return f"choose sizes in that range, or build again with another {option('shape')}"
    return "prepare the tensor in the shape that the model was built for"


def _refuse_nonfinite(array: Array, part: _Part, spec: TensorSpec) -> None:
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        index = tuple(int(i) for i in np.unravel_index(bad[0], array.shape))
        raise InputError(
            f"{part.path} holds NaN or infinity for the input {spec.name!r}: {bad.size} of "
            f"{counted(array.size, 'element')}, the first at {list(index)}",
            hint=f"correct the data, or say {option('allow-nonfinite')} if it is meant",
        )


def _unknown_input(name: str, entries: Mapping[str, InputEntry], where: str = "") -> InputError:
    return InputError(
        f"the model has no input named {name!r}{where}",
        hint=did_you_mean(name, entries, f"its inputs are {_listed(entries)}"),
    )


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
