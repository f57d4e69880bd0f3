"""Inputs of a bundle at other sizes than those of its reference input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.base.shapes import Shape, shape_text
from edgekit.base.tensors import Range, TensorSpec
from edgekit.base.varying import at_sizes
from edgekit.base.wording import did_you_mean

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import Manifest


def inputs_at(bundle: Bundle, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """Return the reference inputs, cut to these shapes of some inputs.

    An input that shares a size with one of them is cut too; other sizes are the largest. UsageError
    for a shape that the model does not take.
    """
    specs = [entry.spec for entry in bundle.manifest.inputs]
    sizes = _sizes(specs, shapes)
    inputs = bundle.reference_inputs()
    return {
        spec.name: inputs[spec.name][tuple(map(slice, at_sizes(spec, sizes).shape))]
        for spec in specs
    }


def largest_in_words(manifest: Manifest) -> str:
    """Return the largest shapes of the inputs whose sizes vary."""
    specs = [entry.spec for entry in manifest.inputs]
    return _in_words(specs, {spec.name: spec.shape for spec in specs})


def sizes_in_words(specs: Sequence[TensorSpec], inputs: Mapping[str, Array]) -> str:
    """Return the shapes of the inputs whose sizes vary: `ids=1x64`."""
    return _in_words(specs, {name: array.shape for name, array in inputs.items()})


def _in_words(specs: Sequence[TensorSpec], shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{s.name}={shape_text(shapes[s.name])}" for s in specs if s.varying)


def _sizes(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape]) -> dict[str, int]:
    known = {spec.name: spec for spec in specs}
    sizes: dict[str, int] = {}
    for name, given in shapes.items():
        if name not in known:
            raise UsageError(
                f"the model has no input named {name!r}",
                hint=did_you_mean(name, known, f"its inputs are {', '.join(known)}"),
            )
        spec = known[name]
        shape = tuple(extent for extent in given if not isinstance(extent, Range))
        if len(shape) != len(given) or not spec.admits(shape):
            raise UsageError(
                f"{option('at', f'{name}={shape_text(given)}')} is no shape of the input "
                f"{name!r}, which takes {spec.shape_in_words()}",
                hint=f"choose sizes in that range, or build again with another {option('shape')}",
            )
        for one in spec.varying:
            size = shape[one.dimension]
            if sizes.setdefault(one.length, size) != size:
                raise UsageError(
                    f"{option('at')} gives {size} and {sizes[one.length]} for what is one size of "
                    "the model",
                    hint="give both inputs the same size, or name one of them only",
                )
    return sizes
