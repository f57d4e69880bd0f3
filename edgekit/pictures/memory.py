"""Memory over time: the plan of the arena, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.wording import counted, exact_size, size
from edgekit.bundle.manifest import Manifest
from edgekit.bundle.manifest_bare_metal import BufferEntry
from edgekit.pictures.parts import Part, channel, chart_of, names, table_of, tooltips

_MOST_BUFFERS = 3000


def memory_part(manifest: Manifest | None) -> Part:
    name, title = "memory", "Memory over time"
    text = "The place of each tensor in the arena, from its first step to its last."
    if manifest is None:
        return Part(name, title, text, missing="`edgekit build MODEL` plans it: report the bundle")
    if manifest.bare_metal is not None:
        c = manifest.bare_metal
        steps = tuple(step.name for step in c.steps)
        return _part(name, title, (c.arena_bytes, c.arena_bound), c.buffers, steps)
    if manifest.arena is not None:
        steps = tuple(step.name for step in manifest.steps)
        arena = manifest.arena
        return _part(name, title, (arena.bytes, arena.bound), arena.buffers, steps)
    missing = (
        "this bundle does not say it: `edgekit build MODEL` makes one that does, unless the model "
        "needs TVM's virtual machine, which allocates memory while it runs"
    )
    return Part(name, title, text, missing=missing)


def alive_bytes(buffers: Sequence[BufferEntry], steps: int) -> tuple[int, ...]:
    """Return the bytes of the arena in use while each step runs; views share their place."""
    found = [0] * steps
    starting: dict[int, list[BufferEntry]] = {}
    for one in buffers:
        starting.setdefault(one.first, []).append(one)
    alive: list[BufferEntry] = []
    for step in range(steps):
        alive = [one for one in alive if one.last >= step] + starting.get(step, [])
        end = 0
        for one in sorted(alive, key=lambda each: each.offset):
            found[step] += max(one.offset + one.bytes - max(one.offset, end), 0)
            end = max(end, one.offset + one.bytes)
    return tuple(found)


def _part(
    name: str,
    title: str,
    whole: tuple[int, int],
    buffers: Sequence[BufferEntry],
    steps: Sequence[str],
) -> Part:
    total, bound = whole
    largest = sorted(buffers, key=lambda one: -one.bytes * (one.last - one.first + 1))
    shown = sorted(largest[:_MOST_BUFFERS], key=lambda one: (one.first, one.offset))
    rows = [
        {
            "name": one.name,
            "use": one.use,
            "first": one.first,
            "end": one.last + 1,
            "low": one.offset,
            "high": one.offset + one.bytes,
            "words": exact_size(one.bytes),
            "steps": f"{one.first} to {one.last}",
        }
        for one in shown
        if one.bytes
    ]
    chart = chart_of(
        f"The arena of {size(total)}: {counted(len(rows), 'buffer')} over "
        f"{counted(len(steps), 'step')}",
        (),
        height=320,
        layer=[
            {
                "data": {"values": chart_of("", rows).spec["data"]["values"]},
                "mark": "rect",
                "encoding": {
                    "x": channel("first", "step", scale={"nice": False}, axis={"tickMinStep": 1}),
                    "x2": {"field": "end"},
                    "y": channel("low", "bytes", axis={"format": "~s"}, scale={"nice": False}),
                    "y2": {"field": "high"},
                    "color": names("use", None, scale={"domain": ["tensor", "scratch"]}),
                    "tooltip": tooltips(name="buffer", use="use", words="size", steps="steps"),
                },
            },
            {
                "data": {"values": [{"bound": bound, "words": exact_size(bound)}]},
                "mark": {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 2},
                "encoding": {
                    "y": channel("bound"),
                    "tooltip": tooltips(words="alive at one step"),
                },
            },
        ],
    )
    table = table_of(
        ("buffer", "use", "bytes", "at", "first step", "last step"),
        (
            (one.name, one.use, f"{one.bytes:,}", f"{one.offset:,}", str(one.first), str(one.last))
            for one in shown
        ),
        ("bytes", "at", "first step", "last step"),
    )
    text = (
        f"The arena has {exact_size(total)}. The dashed line is the most that is alive at one "
        f"step, {exact_size(bound)}: no arena is smaller."
    )
    return Part(name, title, text, (chart,), table)
