"""A caller's inputs: arrays by name, or files. Both are checked against the bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from edgekit.base.errors import InputError
from edgekit.base.options import option
from edgekit.base.varying import sizes_of
from edgekit.base.wording import did_you_mean

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import InputEntry
    from edgekit.bundle.samples import InputFile, Sample

Inputs = Mapping[str, Any] | Sequence[str | Path] | str | Path | None
"""Arrays by input name; or files, as --input names them; None is the bundle's reference input."""


class InputKeywords(TypedDict):
    """Inputs, and what they may hold."""

    inputs: Inputs
    allow_nonfinite: bool
    """Whether NaN and infinity are accepted."""


@dataclass(frozen=True)
class ChosenSamples:
    count: int
    samples: Iterator[Sample] | None
    """The samples; None for the bundle's own reference input."""


def choose_samples(
    bundle: Bundle, inputs: Inputs, allow_nonfinite: bool, start: Path = Path()
) -> ChosenSamples:
    """Return a caller's inputs as samples; InputError if they don't fit the bundle.

    Relative paths begin at `start`.
    """
    if inputs is None or (not isinstance(inputs, (str, Path)) and len(inputs) == 0):
        return ChosenSamples(1, None)
    from edgekit.bundle.samples import Sample, count_samples, iterate_samples

    entries = bundle.manifest.inputs
    if isinstance(inputs, Mapping):
        arrays = checked_arrays(inputs, entries, allow_nonfinite=allow_nonfinite)
        return ChosenSamples(1, iter([Sample("the given arrays", arrays)]))
    files = input_files(inputs, start)
    return ChosenSamples(
        count_samples(files, entries),
        iterate_samples(files, entries, allow_nonfinite=allow_nonfinite),
    )


def input_files(paths: Sequence[str | Path] | str | Path, start: Path) -> tuple[InputFile, ...]:
    """Parse files, or `NAME=FILE`. Relative paths begin at `start`."""
    from edgekit.bundle.samples import parse_input_argument

    named = [paths] if isinstance(paths, (str, Path)) else paths
    found = [parse_input_argument(str(path)) for path in named]
    return tuple(replace(file, path=start / file.path) for file in found)


def checked_arrays(
    given: Mapping[str, Any], entries: Sequence[InputEntry], *, allow_nonfinite: bool
) -> dict[str, Array]:
    """Return arrays for all inputs; those of a state may be left out. Lists and numbers are
    converted; an array must fit."""
    specs = {entry.spec.name: entry.spec for entry in entries}
    for name in given:
        if name not in specs:
            raise InputError(
                f"the model has no input named {name!r}",
                hint=did_you_mean(str(name), specs, f"its inputs are {', '.join(specs)}"),
            )
    missing = [spec for name, spec in specs.items() if name not in given and not spec.state]
    if missing:
        spec = missing[0]
        raise InputError(
            f"no array was given for the input {spec.name!r}",
            hint=f"it takes {spec}",
        )
    arrays = {
        name: _checked(given[name], spec, allow_nonfinite)
        for name, spec in specs.items()
        if name in given
    }
    sizes_of([*specs.values()], arrays)
    return arrays


def _checked(value: object, spec: TensorSpec, allow_nonfinite: bool) -> Array:
    import numpy as np

    from edgekit.base.arrays import numpy_dtype

    expected = numpy_dtype(spec.dtype)
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value, expected)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"what is given for the input {spec.name!r} is no array of {spec.dtype}: {error}",
            hint="give a numpy array",
        ) from error
    if array.dtype.newbyteorder("=") != expected:
        raise InputError(
            f"the array for the input {spec.name!r} holds {array.dtype.name}, and the input takes "
            f"{spec.dtype}",
            hint=_conversion(spec, array),
        )
    if not spec.admits(array.shape):
        batch = spec.admits((1, *array.shape))
        of_range = spec.varying and len(array.shape) == len(spec.shape)
        raise InputError(
            f"the array for the input {spec.name!r} has shape {list(array.shape)}, and the input "
            f"takes {spec.shape_in_words()}",
            hint="add the batch dimension: array[None]"
            if batch
            else f"choose sizes in that range, or build again with another {option('shape')}"
            if of_range
            else "prepare the tensor in the shape that the model was built for",
        )
    if not allow_nonfinite and not np.isfinite(array).all():
        raise InputError(
            f"the array for the input {spec.name!r} holds NaN or infinity",
            hint="correct the data, or say allow_nonfinite=True if it is meant",
        )
    return np.asarray(array, expected, order="C")


def _conversion(spec: TensorSpec, array: Array) -> str:
    if spec.quantization is not None and array.dtype.kind == "f":
        scale, zero = spec.quantization.scales[0], spec.quantization.zero_points[0]
        return f"the input is quantised: give round(value / {scale:g}) + {zero} as {spec.dtype}"
    return f'convert it: array.astype("{spec.dtype}")'
