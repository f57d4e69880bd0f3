"""Estimates whether a model, or its int8 version, fits into a board's memory."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.advice.words import Subject
from edgekit.base.wording import size
from edgekit.building.product import Product
from edgekit.profiles.board import Board

_INT8_SHARE = 0.25


@dataclass(frozen=True)
class Needs:
    """Bytes of a model's activations and weights."""

    activations: int
    weights: int


@dataclass(frozen=True)
class Fit:
    whole: bool
    in_int8: bool
    words: str


def needs_of(subject: Subject, product: Product, board: Board) -> Needs:
    """Return the needs of the model in a product; an estimate if the product has no figures."""
    needs = product.memory_needs(subject.model, board)
    if needs is not None:
        return Needs(*needs)
    cost = subject.summary.cost
    peak = cost.peak_activation_bytes if cost is not None else None
    return Needs(peak or 0, subject.summary.parameter_bytes)


def fit_of(board: Board, needs: Needs) -> Fit:
    whole, words = _fits(board, needs, share=1.0)
    smaller, _ = _fits(board, needs, share=_INT8_SHARE)
    return Fit(whole, smaller, words)


def _fits(board: Board, needs: Needs, share: float) -> tuple[bool, str]:
    """Return whether a share of the model's needs fits, and the needs in words."""
    weights, memory = int(needs.weights * share), board.memory
    need_ram = int(needs.activations * share) + (weights if memory.flash is None else 0)
    words = f"about {size(need_ram)} of {size(memory.ram)} of memory"
    fits = need_ram <= memory.ram
    if memory.flash is not None:
        words += f", {size(weights)} of {size(memory.flash)} of flash"
        fits = fits and weights <= memory.flash
    return fits, words if fits else f"does not fit: {words}"
