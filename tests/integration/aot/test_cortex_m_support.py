"""The tests' own Cortex-M processors: what they count is what was executed."""

from __future__ import annotations

import pytest
from support.cortex_m import PROCESSORS, run_on
from support.needs import CORTEX_M, needs

pytestmark = needs(*CORTEX_M)

_LOOP = r"""
#include <stdio.h>
#include "harness.h"
int main(void) {
  unsigned n = 1000000u;
  volatile float half = 0.5f;
  count_begin();
  __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b" : "+l"(n) : : "cc");
  count_end("loop");
  printf("%d\n", (int)(half * 6.0f));
  return 0;
}
"""


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_loop_of_two_instructions_counts_as_two(processor: str) -> None:
    ran = run_on(processor, {"loop.c": _LOOP})
    assert ran.output == "3\n"
    assert 0 <= ran.instructions["loop"] - 2_000_000 < 60


def test_a_fault_ends_the_run() -> None:
    wild = "int main(void) { ((void (*)(void))0xF0000001u)(); return 0; }"
    assert run_on("m4", {"wild.c": wild}, check=False).status == 99
