"""Tensors whose dimensions vary: what the program gets and gives for them.

A program has fixed shapes. It takes such a tensor at its largest size, and the true size as an
int64 scalar of its own, its length. What lies beyond the true size is padding, of any value.
Lengths follow the other tensors of a program, in the order of their first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.base.errors import BundleError, InputError
from edgekit.base.tensors import TensorSpec

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

Ends = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]
"""Inputs and outputs."""

_LEAST_BUCKET = 8
"""The least size with kernels of its own: below, a run takes no time that counts."""
_MOST_BUCKETS = 6


def with_lengths(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Ends:
    """Return the inputs and outputs of the program: those of the model, and their lengths."""
    taken = dict.fromkeys(_lengths(inputs))
    given = dict.fromkeys(name for name in _lengths(outputs) if name not in taken)
    return (*inputs, *map(_length, taken)), (*outputs, *map(_length, given))


def without_lengths(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Ends:
    """Return the inputs and outputs of the model, without the lengths of the program."""
    lengths = {*_lengths(inputs), *_lengths(outputs)}
    own = [tuple(s for s in specs if s.name not in lengths) for specs in (inputs, outputs)]
    found = (own[0], own[1])
    if with_lengths(*found) != (tuple(inputs), tuple(outputs)):
        raise ValueError("a program's lengths follow its other tensors, in the order of their use")
    return found


def sizes_of(specs: Sequence[TensorSpec], arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the size that each length has for these inputs; InputError where they disagree."""
    sizes: dict[str, tuple[int, str]] = {}
    for spec in specs:
        if spec.name not in arrays:
            continue
        for one in spec.varying:
            size = arrays[spec.name].shape[one.dimension]
            known, first = sizes.setdefault(one.length, (size, spec.name))
            if known != size:
                raise InputError(
                    f"dimension {one.dimension} of the input {spec.name!r} has the size {size}, "
                    f"and the same dimension of {first!r} has {known}",
                    hint="both are one size of the model: give both inputs the same",
                )
    return {length: size for length, (size, _) in sizes.items()}


def at_sizes(spec: TensorSpec, sizes: Mapping[str, int]) -> TensorSpec:
    """Return the tensor with these sizes, fixed; a length that they lack has its largest size."""
    shape = list(spec.shape)
    for one in spec.varying:
        shape[one.dimension] = sizes.get(one.length, shape[one.dimension])
    return replace(spec, shape=tuple(shape), varying=())


def padded(specs: Sequence[TensorSpec], arrays: Mapping[str, Array]) -> list[Array]:
    """Return the inputs of the program: each at its largest size, then the lengths."""
    import numpy as np

    sizes = sizes_of(specs, arrays)
    whole = [arrays[spec.name] for spec in specs]
    for place, spec in enumerate(specs):
        if spec.varying and whole[place].shape != spec.shape:
            large = np.zeros(spec.shape, whole[place].dtype)
            large[tuple(map(slice, whole[place].shape))] = whole[place]
            whole[place] = large
    return [*whole, *(np.array(size, np.int64) for size in sizes.values())]


def trimmed(
    specs: Sequence[TensorSpec], arrays: Sequence[Array], sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Return the model's outputs at their true sizes. `sizes` are those of the inputs, and `arrays`
    the outputs of the program. BundleError for a length outside of its range."""
    import numpy as np

    counted = [name for name in dict.fromkeys(_lengths(specs)) if name not in sizes]
    lengths = {**sizes, **dict(zip(counted, map(int, arrays[len(specs) :]), strict=True))}
    outputs: dict[str, Array] = {}
    for spec, array in zip(specs, arrays[: len(specs)], strict=True):
        found = at_sizes(spec, lengths)
        if not spec.admits(found.shape):
            raise BundleError(
                f"the model says that its output {spec.name!r} is {list(found.shape)}, and the "
                f"manifest promises {spec.shape_in_words()}",
                hint="build the bundle again; if that does not help, report it with the model",
            )
        true = array[tuple(map(slice, found.shape))] if spec.varying else array
        outputs[spec.name] = np.ascontiguousarray(true) if true.shape else true
    return outputs


def buckets_of(specs: Sequence[TensorSpec]) -> list[dict[str, int]]:
    """Return the sizes below the largest for which a program has kernels of their own, from large
    to small: all lengths become half as large together."""
    ranges = _ranges(specs)
    found: list[dict[str, int]] = []
    sizes = {name: high for name, (_, high) in ranges.items()}
    while len(found) < _MOST_BUCKETS:
        sizes = {name: max(low, -(-sizes[name] // 2)) for name, (low, _) in ranges.items()}
        reduced = (sizes[name] for name, (low, _) in ranges.items() if sizes[name] > low)
        if max(reduced, default=0) < _LEAST_BUCKET:
            break
        found.append(sizes)
    return found


def sizes_to_try(specs: Sequence[TensorSpec], count: int = 5) -> list[dict[str, int]]:
    """Return sizes to verify: all at their largest first, then at their smallest, then between: at
    least one for each bucket."""
    ranges = _ranges(specs)
    if not ranges:
        return []
    tried = [{name: high for name, (_, high) in ranges.items()}]
    tried.append({name: low for name, (low, _) in ranges.items()})
    smaller = buckets_of(specs)
    for bucket in (tried[0], *smaller) if smaller else ():
        # Below the largest of a bucket there is padding.
        tried.append({name: max(low, bucket[name] * 3 // 4) for name, (low, _) in ranges.items()})
    wanted = max(count, len(tried))
    between = count - 2
    for step in range(between):
        tried.append(
            {
                # Each range at another share of it, so that sizes are not in proportion.
                name: low + (high - low) * ((step + shift) % between + 1) // (between + 1)
                for shift, (name, (low, high)) in enumerate(ranges.items())
            }
        )
    return [dict(one) for one in dict.fromkeys(tuple(one.items()) for one in tried)][:wanted]


def _ranges(specs: Iterable[TensorSpec]) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest value of each length."""
    ranges: dict[str, tuple[int, int]] = {}
    for spec in specs:
        for one in spec.varying:
            ranges.setdefault(one.length, (one.smallest, spec.shape[one.dimension]))
    return ranges


def _lengths(specs: Iterable[TensorSpec]) -> Iterator[str]:
    return (one.length for spec in specs for one in spec.varying)


def _length(name: str) -> TensorSpec:
    return TensorSpec(name, "int64", ())
