"""Which generators offer a kernel for an integer operator, and which leave it to another."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.aot.arithmetic import fixed_point, has_ties, high_half, multiply, shift_right
from edgekit.aot.generators import generators
from edgekit.aot.kernel import Declined, Kernel
from edgekit.aot.operators import Add, FixedPoint, MaxPool, Operand, Rescale, Window
from edgekit.aot.operators import Image as Extent
from edgekit.aot.program import Step
from edgekit.profiles.cpu import Cpu

FEATURES = ("dsp", "fpu-single", "mve-integer", "mve-float")
M4 = Cpu("Cortex-M4", "cortex-m", FEATURES[:2], 1)
M55 = Cpu("Cortex-M55", "cortex-m", FEATURES, 1)
HALF = FixedPoint(1 << 30, 0)


def sum_with_a_constant() -> Step:
    constant = np.arange(16, dtype="int8").reshape(1, 16)
    sides = (Operand((1, 16), 3, HALF), Operand((1, 16), -2, HALF, constant))
    rescale = Rescale((FixedPoint(1 << 30, -18),), 0, -128, 127)
    return Step("sum", Add(*sides, 20, False, (1, 16), rescale), (0,), (1,), ("sum",))


@pytest.mark.parametrize("cpu", [M4, M55], ids=lambda cpu: cpu.name)
def test_a_sum_with_a_constant_has_one_input_and_a_portable_kernel(cpu: Cpu) -> None:
    offers = [generator.offer(sum_with_a_constant(), cpu) for generator in generators()]
    kernels = [offer for offer in offers if isinstance(offer, Kernel)]
    assert [kernel.maker for kernel in kernels] == ["edgekit"]
    assert all(offer.reason for offer in offers if isinstance(offer, Declined))
    assert [constant.name for constant in kernels[0].constants] == ["right"]


def test_pooling_states_its_cost_where_nothing_computes_vectors() -> None:
    image = Extent(8, 8, 4)
    operator = MaxPool(image, Extent(4, 4, 4), Window((2, 2), (2, 2)), -128, 127)
    step = Step("largest", operator, (0,), (1,), ("largest",))
    costs = [
        offer.instructions
        for cpu in (M4, M55)
        for offer in (generator.offer(step, cpu) for generator in generators())
        if isinstance(offer, Kernel) and offer.maker == "edgekit"
    ]
    assert costs[0] is not None
    assert costs[1] is None


@pytest.mark.parametrize(
    ("factor", "largest", "expected"),
    [
        (0.25, 1, False),
        (0.25, 2, True),
        (0.5, 1, True),
        (3 / 8, 3, False),
        (3 / 8, 4, True),
        (float(np.float32(0.1)), 1 << 20, False),
        (0.0, 1 << 30, False),
    ],
)
def test_ties_are_known_before_they_happen(factor: float, largest: int, expected: bool) -> None:
    assert has_ties(fixed_point(factor), largest) is expected
    halves = [value for value in range(1, min(largest, 1000) + 1) if (value * factor * 2) % 2 == 1]
    assert bool(halves) is expected


@pytest.mark.parametrize(
    ("value", "factor", "expected"),
    [(5, 0.5, 3), (-5, 0.5, -2), (3, 0.25, 1), (-3, 0.25, -1), (7, 3.0, 21), (-7, 3.0, -21)],
)
def test_products_round_twice(value: int, factor: float, expected: int) -> None:
    """2.5 below zero becomes 2 in the first rounding, which takes ties up."""
    assert multiply(value, fixed_point(factor)) == expected


def test_the_largest_negative_product_saturates() -> None:
    least = -(1 << 31)
    assert high_half(least, least) == (1 << 31) - 1
    assert shift_right(-3, 1) == -2
