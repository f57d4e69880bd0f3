"""Estimated cycles: the table of Cortex-M0+."""

from __future__ import annotations

from collections import Counter

from benchmarks.cycles import CORES, cycles

LOOP = ("ldr\tr2, [r0]", "ldm\tr1!, {r3, r4}", "muls\tr2, r3, r2", "str\tr2, [r0]", "bne\t.")
RETURN = ("pop\t{r4, r5, pc}",)


def test_cortex_m0plus_has_the_cycles_of_its_manual() -> None:
    spent, unknown = cycles(Counter({LOOP: 10, RETURN: 1}), CORES["M0+"])

    assert spent == 10 * (2 + 3 + 1 + 2 + 2) + 6
    assert unknown == 0
