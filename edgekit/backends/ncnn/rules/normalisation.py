"""Normalisations by the tensor's own statistics, as single operators and as importers spell them
out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import checked
from edgekit.backends.ncnn.rules.common import held_shape, require_batch_of_one
from edgekit.backends.rule_tools import OUT, integers, positive, scalar


def rules() -> list[Rule]:
    return [_written_out(), _layer_norm_rule(), _rms_rule()]


def _call(name: str, *arguments: Any) -> Any:
    return is_op(f"relax.{name}")(*arguments)


def _layer_norm_rule() -> Rule:
    value, gamma, beta = wildcard(), is_const(), is_const()
    call = _call("nn.layer_norm", value, gamma, beta)

    def take(match: Match) -> Layer:
        held_shape(match, "input")
        attrs, shape = match.attrs(OUT), match.shape("input")
        axes = positive(integers(attrs.axes), len(shape))
        rows, size = _rows(shape, axes)
        gammas, betas = match.weights("gamma").reshape(-1), match.weights("beta").reshape(-1)
        if gammas.size != size or betas.size != size:
            raise Refused("it has not one factor and one bias an element")
        settings: dict[str, Setting] = {"affine_size": size, "eps": float(attrs.epsilon)}
        view = {"view0": checked((rows, size)), "makes": checked((rows, size))}
        weights = {"gamma": gammas, "beta": betas}
        return Layer("LayerNorm", ("input",), {**settings, **view}, weights)

    parts = {"input": value, "gamma": gamma, "beta": beta, OUT: call}
    return Rule("nn.layer_norm", call, parts, take)


def _rows(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int]:
    """Return how many rows are normalised, and how long they are."""
    first = len(shape) - len(axes)
    if not axes or tuple(sorted(axes)) != tuple(range(first, len(shape))):
        raise Refused("it is not over the last axes")
    size = math.prod(shape[first:])
    _require_several(size)
    return math.prod(shape[:first]), size


def _require_several(size: int) -> None:
    """Refuse rows of a single element: ncnn scales and shifts where the model subtracts the mean
    first, and its rounding errors are then a few hundred times as large."""
    if size == 1:
        raise Refused("it normalises single elements")


def _written_out() -> Rule:
    """Match (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * gamma + beta."""
    value, epsilon, gamma, beta = wildcard(), is_const(), is_const(), is_const()
    mean = _call("mean", value)
    centred = _call("subtract", value, mean)
    variance = _call("mean", _call("multiply", centred, centred))
    deviation = _call("sqrt", _call("add", variance, epsilon))
    scaled = _call("multiply", _call("divide", centred, deviation), gamma)
    call = _call("add", scaled, beta)
    parts = {"input": value, "mean": mean, "variance": variance, "epsilon": epsilon}
    return Rule(
        "normalisation", call, {**parts, "gamma": gamma, "beta": beta, OUT: call}, _take_written_out
    )


def _take_written_out(match: Match) -> Layer:
    """Normalise over all axes after the channels, or after groups of channels."""
    held_shape(match, "input")
    shape = match.shape("input")
    require_batch_of_one(shape)
    rank = len(shape)
    over = [positive(integers(match.attrs(part).axis), rank) for part in ("mean", "variance")]
    if any(sorted(axes) != list(range(2, rank)) for axes in over):
        raise Refused("it is not over all axes behind the channels")
    groups, epsilon = shape[1], scalar(match, "epsilon")
    whole = math.prod(shape[2:])
    _require_several(whole)
    affine = {name: match.weights(name) for name in ("gamma", "beta")}
    if all(_is_by(array, (groups,), rank) for array in affine.values()):
        settings: dict[str, Setting] = {"channels": groups, "eps": epsilon}
        view = {"view0": checked((groups, 1, whole)), "makes": (groups, 1, whole)}
        weights = {name: array.reshape(-1) for name, array in affine.items()}
        return Layer("InstanceNorm", ("input",), {**settings, **view}, weights)
    members = shape[2] if rank > 2 else 1
    channels, size = groups * members, whole // members
    weights = {name: _by_channel(array, groups, members, rank) for name, array in affine.items()}
    settings = {"group": groups, "channels": channels, "eps": epsilon}
    view = {"view0": checked((channels, 1, size)), "makes": (channels, 1, size)}
    return Layer("GroupNorm", ("input",), {**settings, **view}, weights)


def _is_by(array: Any, extents: tuple[int, ...], rank: int) -> bool:
    """Tell whether a constant has these extents after the batch axis, and no others."""
    full = (1,) * (rank - array.ndim) + array.shape
    return bool(full == (1, *extents) + (1,) * (rank - 1 - len(extents)))


def _by_channel(array: Any, groups: int, members: int, rank: int) -> Any:
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if full.shape[0] != 1 or any(extent != 1 for extent in full.shape[3:]):
        raise Refused("its factors are not by group nor by channel")
    return np.broadcast_to(full.reshape(full.shape[1:3]), (groups, members)).reshape(-1).copy()


def _rms_rule() -> Rule:
    """Match x / sqrt(mean(x^2) + eps) * gamma."""
    value, epsilon, gamma = wildcard(), is_const(), is_const()
    mean = _call("mean", _call("multiply", value, value))
    root = _call("sqrt", _call("add", mean, epsilon))
    call = _call("multiply", _call("divide", value, root), gamma)

    def take(match: Match) -> Layer:
        held_shape(match, "input")
        shape = match.shape("input")
        rows, size = _rows(shape, positive(integers(match.attrs("mean").axis), len(shape)))
        gammas = match.weights("gamma").reshape(-1)
        if gammas.size != size:
            raise Refused("it has not one factor an element")
        settings: dict[str, Setting] = {"affine_size": size, "eps": scalar(match, "epsilon")}
        view = {"view0": checked((rows, size)), "makes": checked((rows, size))}
        return Layer("RMSNorm", ("input",), {**settings, **view}, {"gamma": gammas})

    parts = {"input": value, "mean": mean, "epsilon": epsilon, "gamma": gamma, OUT: call}
    return Rule("rms_norm", call, parts, take)
