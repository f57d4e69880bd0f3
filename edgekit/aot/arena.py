"""Place each buffer of a program in one arena, so that no two buffers alive together overlap.

Inputs, outputs, intermediate buffers and the kernels' scratch memory are planned together. No plan
that keeps the order of steps needs less than the most bytes that are alive at one step; this one
reports how near it comes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Protocol

from edgekit.aot.program import Program
from edgekit.compiler.steps import CodeBuffer

ALIGNMENT = 16
_TRIED_ALL = 6
"""The most blocks of memory for which every order is tried."""
_SWAPS = 1000
_TRIED_PAIRS = 1_000_000
"""The most pairs of blocks that all swaps together compare, about a second: a large model has many
blocks, each of which meets many others."""
_SEED = 20
_GOOD_ENOUGH = 1.02


@dataclass(frozen=True)
class Block:
    """A number of bytes at one place, from a first step on: as many as each step needs."""

    first: int
    sizes: tuple[int, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.sizes) - 1

    @property
    def size(self) -> int:
        return max(self.sizes)

    def at(self, step: int) -> int:
        return self.sizes[step - self.first] if self.first <= step <= self.last else 0

    def most_bytes_during(self, other: Block) -> int:
        """Return the most bytes of this block while the other is alive."""
        steps = range(max(self.first, other.first), min(self.last, other.last) + 1)
        return max((self.at(step) for step in steps), default=0)


@dataclass(frozen=True)
class ArenaPlan:
    buffers: tuple[int, ...]
    """The offset of each buffer."""
    scratch: tuple[int | None, ...]
    """The offset of each step's own memory, if it needs any."""
    bytes: int
    bound: int
    """The most bytes that are alive at one step: no plan has less."""
    alive: tuple[int, ...]
    """The bytes that are alive at each step."""
    in_place: tuple[int, ...]
    """Steps whose result overwrites their input."""

    @property
    def shortfall(self) -> str:
        """The reason why the plan is larger than it could be; empty where it is not."""
        if self.bytes <= self.bound * _GOOD_ENOUGH:
            return ""
        return (
            f"the arena has {self.bytes} bytes, {self.bytes - self.bound} more than are alive at "
            f"one step: no place for {len(self.buffers)} buffers was found that leaves no gap"
        )


class Needs(Protocol):
    """What a step needs besides its operands' memory; kernels have these."""

    @property
    def scratch(self) -> int: ...

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]: ...


def plan_arena(program: Program, kernels: Sequence[Needs], alignment: int = ALIGNMENT) -> ArenaPlan:
    program = program.placed()
    slots, in_place = _slots(program, kernels)
    owners = sorted(set(slots))
    blocks = _blocks(program, kernels, slots, alignment)
    offsets = place(tuple(blocks))
    scratch_steps = [k for k, kernel in enumerate(kernels) if kernel.scratch]
    place_of_owner = dict(zip(owners, offsets, strict=False))
    place_of_scratch = dict(zip(scratch_steps, offsets[len(owners) :], strict=True))
    return ArenaPlan(
        buffers=tuple(place_of_owner[slot] for slot in slots),
        scratch=tuple(place_of_scratch.get(k) for k in range(len(kernels))),
        bytes=_total(blocks, offsets),
        bound=lower_bound(blocks),
        alive=tuple(_alive(blocks, len(program.steps))),
        in_place=in_place,
    )


@lru_cache(maxsize=4)
def place(blocks: tuple[Block, ...]) -> tuple[int, ...]:
    """Return an offset for each block, as good as a search with a deterministic end finds.

    A model is planned with and without steps in place, and again with the kernels' scratch memory:
    often these are the same blocks.
    """
    search = _Search(blocks)
    for order in _promising_orders(blocks):
        if search.offer(order):
            return search.offsets
    if len(blocks) <= _TRIED_ALL:
        for candidate in permutations(range(len(blocks))):
            if search.offer(candidate):
                break
        return search.offsets
    dice = random.Random(_SEED)
    order = list(search.order)
    for _ in range(min(_SWAPS, _TRIED_PAIRS // max(search.pairs, 1))):
        a, b = dice.randrange(len(order)), dice.randrange(len(order))
        order[a], order[b] = order[b], order[a]
        if search.offer(order):
            break
        order = list(search.order)
    return search.offsets


def lower_bound(blocks: Iterable[Block]) -> int:
    blocks = tuple(blocks)
    return max(_alive(blocks, max((block.last for block in blocks), default=-1) + 1), default=0)


class _Search:
    """The search for the best order. Placing the blocks of the best plan in the order of their
    offsets gives that plan: some order is always optimal."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._bound = lower_bound(blocks)
        self._meets = _meetings(blocks)
        """The blocks that each block must not overlap, and the sizes of both at that time."""
        self.pairs = sum(map(len, self._meets))
        """The pairs that are compared to place all blocks once."""
        self._sizes = [block.size for block in blocks]
        self._best: int | None = None
        self.offsets: tuple[int, ...] = ()
        self.order: tuple[int, ...] = ()

    def offer(self, order: Sequence[int]) -> bool:
        """Take the order if it is no worse than the best; return whether the best is optimal."""
        offsets = self._first_fit(order)
        if offsets is not None:
            self._best = max((o + s for o, s in zip(offsets, self._sizes, strict=True)), default=0)
            self.offsets, self.order = tuple(offsets), tuple(order)
        return self._best is not None and self._best <= self._bound

    def _first_fit(self, order: Sequence[int]) -> list[int] | None:
        """Return the offsets; None where the order is worse than the best one."""
        offsets = [-1] * len(self._blocks)
        for index in order:
            # Offsets between these bounds would make the two blocks overlap.
            barred = [
                (at - own, at + others)
                for k, own, others in self._meets[index]
                if (at := offsets[k]) >= 0
            ]
            barred.sort()
            start = 0
            for low, high in barred:
                if low >= start:
                    break
                if high > start:
                    start = high
            offsets[index] = start
            if self._best is not None and start + self._sizes[index] > self._best:
                return None
        return offsets


def _meetings(blocks: Sequence[Block]) -> list[list[tuple[int, int, int]]]:
    meets: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    alive: list[int] = []
    for k in sorted(range(len(blocks)), key=lambda k: blocks[k].first):
        block = blocks[k]
        alive = [other for other in alive if blocks[other].last >= block.first]
        for other in alive:
            own = block.most_bytes_during(blocks[other])
            others = blocks[other].most_bytes_during(block)
            meets[k].append((other, own, others))
            meets[other].append((k, others, own))
        alive.append(k)
    return meets


def _promising_orders(blocks: Sequence[Block]) -> Iterable[list[int]]:
    everything = range(len(blocks))
    alive = _alive(blocks, max((block.last for block in blocks), default=0) + 1)

    def pressure(block: Block) -> int:
        return max(alive[block.first : block.last + 1])

    yield sorted(everything, key=lambda k: (-blocks[k].size, blocks[k].first))
    yield sorted(everything, key=lambda k: (-pressure(blocks[k]), -blocks[k].size))
    yield sorted(everything, key=lambda k: -sum(blocks[k].sizes))
    yield sorted(everything, key=lambda k: (blocks[k].first - blocks[k].last, -blocks[k].size))
    yield sorted(everything, key=lambda k: (blocks[k].first, -blocks[k].size))


def _blocks(
    program: Program, kernels: Sequence[Needs], slots: Sequence[int], alignment: int
) -> list[Block]:
    """Return a block for each slot, in the order of their owners, then one for each kernel's
    scratch."""
    last_step = max(len(program.steps) - 1, 0)
    firsts, lasts = lifetimes(program)
    members_of: dict[int, list[int]] = {}
    for k, slot in enumerate(slots):
        members_of.setdefault(slot, []).append(k)
    blocks = []
    for _, members in sorted(members_of.items()):
        first = min(firsts[k] for k in members)
        last = min(max(lasts[k] for k in members), last_step)
        sizes = [
            max(
                (
                    _aligned(program.buffers[k].bytes, alignment)
                    for k in members
                    if firsts[k] <= step <= lasts[k]
                ),
                default=0,
            )
            for step in range(first, last + 1)
        ]
        blocks.append(Block(first, tuple(sizes)))
    own = [Block(i, (_aligned(k.scratch, alignment),)) for i, k in enumerate(kernels) if k.scratch]
    return [*blocks, *own]


def _slots(program: Program, kernels: Sequence[Needs]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return for each buffer the one whose memory it shares, and the steps that work in place.

    Inputs are no exception: a step that overwrites one writes to its place in the arena, never
    through the caller's own pointer.
    """
    _, lasts = lifetimes(program)
    slots = list(range(len(program.buffers)))
    in_place = []
    for index, (step, kernel) in enumerate(zip(program.steps, kernels, strict=True)):
        used: set[int] = set()
        for i, j in kernel.in_place:
            source, result = step.inputs[i], step.outputs[j]
            is_free = lasts[source] == index and source not in program.results
            fits = program.buffers[result].bytes <= program.buffers[source].bytes
            if not (is_free and fits) or step.inputs.count(source) > 1 or {source, result} & used:
                continue
            slots = [slots[source] if k == result else slot for k, slot in enumerate(slots)]
            used |= {source, result}
            in_place.append(index)
    return tuple(slots), tuple(in_place)


def lifetimes(program: Program) -> tuple[list[int], list[int]]:
    """Return for each buffer the first and the last step that needs it."""
    firsts = [0] * len(program.buffers)
    lasts = [0] * len(program.buffers)
    for index, step in enumerate(program.steps):
        for buffer in step.outputs:
            firsts[buffer] = index
            lasts[buffer] = index
        for buffer in step.inputs:
            lasts[buffer] = index
    for buffer in program.results:
        lasts[buffer] = len(program.steps)
    return firsts, lasts


def places(program: Program, arena: ArenaPlan, scratch: Sequence[int]) -> tuple[CodeBuffer, ...]:
    """Return all buffers with their places, in the order of their first use. `scratch` has the
    bytes of each step's own memory."""
    last_step = max(len(program.steps) - 1, 0)
    found = [
        CodeBuffer(buffer.name, "tensor", offset, buffer.bytes, first, min(last, last_step))
        for buffer, offset, first, last in zip(
            program.buffers, arena.buffers, *lifetimes(program), strict=True
        )
    ]
    for index, (step, place, size) in enumerate(
        zip(program.steps, arena.scratch, scratch, strict=True)
    ):
        if place is not None:
            found.append(CodeBuffer(step.name, "scratch", place, size, index, index))
    return tuple(sorted(found, key=lambda one: (one.first, one.offset)))


def reads_of(program: Program) -> tuple[tuple[int, ...], ...]:
    """Return for each step the steps whose results it reads."""
    writer: dict[int, int] = {}
    found = []
    for index, step in enumerate(program.steps):
        found.append(tuple(sorted({writer[one] for one in step.inputs if one in writer})))
        writer.update(dict.fromkeys(step.outputs, index))
    return tuple(found)


def _alive(blocks: Sequence[Block], steps: int) -> list[int]:
    """Return the bytes that are alive at each step."""
    alive = [0] * steps
    for block in blocks:
        for step, size in enumerate(block.sizes[: max(steps - block.first, 0)], block.first):
            alive[step] += size
    return alive


def _total(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    return max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
