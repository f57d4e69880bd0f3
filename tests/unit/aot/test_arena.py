"""One arena: no two buffers that are alive together overlap, and little is wasted."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from edgekit.aot.arena import ALIGNMENT, ArenaPlan, Block, lower_bound, place, plan_arena
from edgekit.aot.kernel import Kernel
from edgekit.aot.operators import Dequantize
from edgekit.aot.program import Buffer, Program, Step
from edgekit.base.tensors import TensorSpec

SIZES = st.integers(1, 64).map(lambda number: number * ALIGNMENT)


@st.composite
def blocks(draw: st.DrawFn) -> list[Block]:
    steps = draw(st.integers(1, 12))
    made = []
    for _ in range(draw(st.integers(1, 14))):
        first = draw(st.integers(0, steps - 1))
        length = draw(st.integers(1, steps - first))
        if draw(st.booleans()):
            made.append(Block(first, (draw(SIZES),) * length))
        else:
            made.append(Block(first, tuple(draw(SIZES) for _ in range(length))))
    return made


@given(blocks())
@settings(max_examples=examples(60), deadline=None)
def test_blocks_that_are_alive_together_never_overlap(made: list[Block]) -> None:
    offsets = place(tuple(made))
    for (a, at), (b, bt) in combinations(zip(made, offsets, strict=True), 2):
        for step in range(max(a.first, b.first), min(a.last, b.last) + 1):
            assert at + a.at(step) <= bt or bt + b.at(step) <= at
    assert all(offset >= 0 and offset % ALIGNMENT == 0 for offset in offsets)


@given(blocks())
@settings(max_examples=examples(60), deadline=None)
def test_an_arena_is_never_smaller_than_what_is_alive_at_one_step(made: list[Block]) -> None:
    total = max(offset + block.size for offset, block in zip(place(tuple(made)), made, strict=True))
    alive = [sum(block.at(step) for block in made) for step in range(12)]
    assert lower_bound(made) == max(alive)
    assert total >= lower_bound(made)


@given(blocks())
@settings(max_examples=examples(15), deadline=None)
def test_the_same_blocks_get_the_same_places(made: list[Block]) -> None:
    once = place(tuple(made))
    place.cache_clear()
    assert place(tuple(made)) == once


def test_a_gap_that_first_fit_by_size_leaves_is_found_and_filled() -> None:
    """Largest first gives 8 units here, and 7 will do."""
    unit = ALIGNMENT
    made = [
        Block(0, (3 * unit,) * 2),
        Block(1, (2 * unit,) * 2),
        Block(2, (4 * unit,) * 2),
        Block(1, (1 * unit,) * 3),
        Block(3, (3 * unit,) * 2),
    ]
    total = max(offset + block.size for offset, block in zip(place(tuple(made)), made, strict=True))
    assert total == lower_bound(made)


def chain(
    sizes: list[int],
    kernels: list[Kernel],
    reads: list[tuple[int, ...]],
    result: int | None = None,
) -> ArenaPlan:
    """A program of buffers in a row: step k writes buffer k + 1 and reads what is said."""
    buffers = tuple(Buffer(f"b{k}", "int8", (size,), size) for k, size in enumerate(sizes))
    spec = TensorSpec("x", "int8", (sizes[0],))
    steps = tuple(
        Step(f"s{k}", Dequantize(1, 1.0, 0), read, (k + 1,), ()) for k, read in enumerate(reads)
    )
    last = len(sizes) - 1 if result is None else result
    program = Program("net", "0" * 64, (spec,), (replace(spec, name="y"),), buffers, steps, (last,))
    return plan_arena(program, kernels)


PLAIN = Kernel("edgekit", "")
IN_PLACE = Kernel("edgekit", "", in_place=((0, 0),))


def test_a_kernel_in_place_takes_over_the_memory_of_what_it_reads() -> None:
    sizes, reads = [160, 160, 160], [(0,), (1,)]
    assert chain(sizes, [PLAIN, PLAIN], reads).bytes == 320
    plan = chain(sizes, [PLAIN, IN_PLACE], reads)
    assert plan.buffers[1] == plan.buffers[2]
    assert plan.in_place == (1,)
    assert plan.bytes == 320  # the step before still reads one and writes another


def test_a_smaller_result_in_place_leaves_the_rest_free_for_what_comes_later() -> None:
    kernels = [PLAIN, IN_PLACE, PLAIN, PLAIN]
    plan = chain([16, 320, 160, 640, 16], kernels, [(0,), (1,), (2,), (3,)])
    assert plan.in_place == (1,)
    assert plan.alive == (336, 320, 800, 656)
    assert plan.bytes == plan.bound == 800


def test_an_input_may_be_overwritten_at_its_place_in_the_arena() -> None:
    """A pointer of the caller's own is only read: the result goes to the arena all the same."""
    plan = chain([160, 160], [IN_PLACE], [(0,)])
    assert plan.in_place == (0,)
    assert plan.bytes == 160


def test_what_is_read_again_later_is_not_overwritten_in_place() -> None:
    plan = chain([16, 160, 160, 160], [PLAIN, IN_PLACE, PLAIN], [(0,), (1,), (1, 2)])
    assert plan.in_place == ()
    assert plan.buffers[1] != plan.buffers[2]


def test_an_output_of_the_model_is_not_overwritten_in_place() -> None:
    plan = chain([16, 160, 160], [PLAIN, IN_PLACE], [(0,), (1,)], result=1)
    assert plan.in_place == ()


def test_a_kernels_own_memory_is_part_of_the_arena_while_it_runs() -> None:
    with_scratch = replace(PLAIN, scratch=100)
    plan = chain([64, 64, 64], [PLAIN, with_scratch], [(0,), (1,)])
    assert plan.scratch[0] is None
    assert plan.scratch[1] is not None
    assert plan.alive == (128, 128 + 112)
    assert plan.bytes == plan.bound == 240


def test_an_output_stays_until_the_end() -> None:
    plan = chain([16, 160, 320, 16], [PLAIN] * 3, [(0,), (0,), (2,)], result=1)
    assert plan.buffers[1] + 160 <= plan.buffers[2] or plan.buffers[2] + 320 <= plan.buffers[1]
    assert plan.alive[2] == 160 + 320 + 16


def test_a_plan_that_wastes_says_so() -> None:
    good = chain([64, 64], [PLAIN], [(0,)])
    assert good.shortfall == ""
    wasteful = replace(good, bytes=good.bound + 1000)
    assert "1000 more" in wasteful.shortfall
