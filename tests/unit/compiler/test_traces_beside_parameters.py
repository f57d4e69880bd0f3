"""A build takes what gains more: a product's measured parameters or its measured trace."""

from __future__ import annotations

import pytest

from edgekit.building.tuned_kernels import TunedKernel, choices_of
from edgekit.compiler.schedules.choices import EXACTLY, Choice, ProductChoice, TraceChoice

PRODUCT = "product-0"
WHOLE = f"{PRODUCT}{EXACTLY}00ff"
PARAMETERS = ProductChoice(unrolled=8)
TRACE = TraceChoice("[[],[]]")


def kernel(key: str, choice: Choice, best_us: float) -> TunedKernel:
    return TunedKernel(key, choice, best_us, 100.0, "a product", "desk")


@pytest.mark.parametrize(
    ("parameters", "trace", "taken"),
    [
        (80.0, 90.0, {PRODUCT: PARAMETERS}),
        (90.0, 80.0, {PRODUCT: PARAMETERS, WHOLE: TRACE}),
        (99.0, 80.0, {WHOLE: TRACE}),
        (80.0, 99.0, {PRODUCT: PARAMETERS}),
        (99.0, 99.0, {}),
    ],
)
def test_a_trace_that_gains_less_than_the_products_parameters_is_not_taken(
    parameters: float, trace: float, taken: dict[str, Choice]
) -> None:
    known = {
        PRODUCT: kernel(PRODUCT, PARAMETERS, parameters),
        WHOLE: kernel(WHOLE, TRACE, trace),
    }

    assert choices_of(known).of_kernel == taken


def test_a_trace_of_a_kernel_that_is_no_product_needs_no_comparison() -> None:
    known = {"kernel-1": kernel("kernel-1", TRACE, 80.0)}

    assert choices_of(known).of_kernel == {"kernel-1": TRACE}
    assert choices_of(known).traces
