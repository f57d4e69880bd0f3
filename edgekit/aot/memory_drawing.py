"""Draw a memory map as an SVG that any browser shows, on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.aot.memory_map import BoardFit, FlashUse, MemoryMap
from edgekit.base import svg
from edgekit.base.wording import counted, percent
from edgekit.bundle.manifest_bare_metal import BufferEntry

_WIDTH = 960.0
_LEFT, _RIGHT = 84.0, 24.0
_PLOT_HEIGHT = 300.0
_ROW = 18.0
_LABEL, _NUMBER = 230.0, 250.0
"""Room for the labels left of a bar, and for the numbers right of it."""
_CHARACTER = 6.2
_MOST_BARS = 40
_MOST_TICKS = 24
_STYLE = """\
text{font:11px sans-serif;fill:#222}
.head{font-weight:bold;font-size:14px}
.page{fill:#fff}
.tensor{fill:#8ab6e8;stroke:#2b5f9e}
.scratch{fill:#f4bf75;stroke:#9c6300}
.frame{fill:none;stroke:#888}
.bound{stroke:#c9304c;stroke-width:1.5;stroke-dasharray:6 3}
.bar{fill:#8ab6e8}
.over{fill:#e58b9b}
.room{fill:#e6e8eb}
@media (prefers-color-scheme:dark){
text{fill:#e6e6e6}
.page{fill:#16181c}
.tensor{fill:#2f5d92;stroke:#8ab6e8}
.scratch{fill:#8a5a0c;stroke:#f4bf75}
.bar{fill:#2f5d92}
.over{fill:#993347}
.room{fill:#33373d}
.bound{stroke:#ff7d92}
}
"""


def draw_memory_map(memory: MemoryMap) -> str:
    """Return the SVG, the same text for the same map."""
    parts: list[str] = []
    y = 28.0
    for title, drawn in (
        (
            f"{memory.name}: {counted(memory.arena_bytes, 'byte')} of arena, step by step",
            _arena(memory),
        ),
        ("Flash, in bytes", _flash(memory)),
        ("Boards", _boards(memory)),
    ):
        parts.append(svg.text(12, y, title, class_="head"))
        height, shapes = drawn
        parts.append(svg.element("g", *shapes, transform=f"translate(0 {y + 14:.1f})"))
        y += height + 44
    page = svg.rectangle(0, 0, _WIDTH, y, class_="page")
    return svg.picture(_WIDTH, y, svg.element("style", _STYLE), page, *parts) + "\n"


def _arena(memory: MemoryMap) -> tuple[float, list[str]]:
    """Draw the arena: steps from left to right, bytes from the bottom up."""
    steps, total = max(len(memory.steps), 1), max(memory.arena_bytes, 1)
    room = _WIDTH - _LEFT - _RIGHT
    column = room / steps

    def height_of(count: int) -> float:
        return _PLOT_HEIGHT * count / total

    shapes = []
    for buffer in memory.buffers:
        height = height_of(buffer.bytes)
        x, y = _LEFT + column * buffer.first, _PLOT_HEIGHT - height_of(buffer.offset) - height
        width = column * (buffer.last - buffer.first + 1)
        shapes.append(_buffer(memory, buffer, (x, y), (width, height)))
    shapes.append(svg.rectangle(_LEFT, 0, room, _PLOT_HEIGHT, class_="frame"))
    bound = _PLOT_HEIGHT - height_of(memory.arena_bound)
    told = f"alive at one step: {counted(memory.arena_bound, 'byte')}; no arena is smaller"
    shapes.append(
        svg.with_tooltip(told, svg.line(_LEFT, bound, _LEFT + room, bound, class_="bound"))
    )
    for part in range(5):
        count = total * part // 4
        y = _PLOT_HEIGHT - height_of(count) + 4
        shapes.append(svg.text(_LEFT - 6, y, str(count), text_anchor="end"))
    every = -(-steps // _MOST_TICKS)
    for step in range(0, steps, every):
        x = _LEFT + column * (step + 0.5)
        shapes.append(svg.text(x, _PLOT_HEIGHT + 15, str(step), text_anchor="middle"))
    y = _PLOT_HEIGHT + 34
    for kind, words, at in (("tensor", "tensors", 0), ("scratch", "scratch of kernels", 90)):
        shapes.append(svg.rectangle(_LEFT + at, y - 10, 12, 12, class_=kind))
        shapes.append(svg.text(_LEFT + at + 18, y, words))
    shapes.append(svg.line(_LEFT + 240, y - 4, _LEFT + 270, y - 4, class_="bound"))
    words = f"the most that is alive at one step, {counted(memory.arena_bound, 'byte')}"
    shapes.append(svg.text(_LEFT + 276, y, words))
    return _PLOT_HEIGHT + 40, shapes


def _buffer(
    memory: MemoryMap, buffer: BufferEntry, place: tuple[float, float], box: tuple[float, float]
) -> str:
    (x, y), (width, height) = place, box
    first, last = (_step(memory, number) for number in (buffer.first, buffer.last))
    told = f"{buffer.name}: {counted(buffer.bytes, 'byte')} at {buffer.offset}, {first} to {last}"
    if buffer.use == "scratch":
        told = f"scratch of {told}"
    name = svg.fitting(buffer.name, width - 6, _CHARACTER) if height >= 12 else ""
    frame = svg.rectangle(x, y, width, max(height, 0.5), class_=buffer.use)
    label = svg.text(x + 3, y + height / 2 + 4, name) if name else ""
    return svg.with_tooltip(told, frame, label)


def _flash(memory: MemoryMap) -> tuple[float, list[str]]:
    uses = list(memory.flash)
    if len(uses) > _MOST_BARS:
        kept = sorted(uses, key=lambda use: -use.bytes)[: _MOST_BARS - 1]
        rest = [use for use in uses if use not in kept]
        uses = [use for use in uses if use in kept]
        uses.append(FlashUse(f"{len(rest)} others", (), sum(use.bytes for use in rest)))
    total = sum(use.bytes for use in uses)
    most = max([use.bytes for use in uses], default=0)
    shapes = []
    for row, use in enumerate(uses):
        told = f"{use.what}: {counted(use.bytes, 'byte')} {', '.join(use.layers)}"
        words = f"{use.bytes:,} ({percent(use.bytes / max(total, 1))})"
        shapes.append(svg.with_tooltip(told, *_bar(row, use.what, (use.bytes, most), "bar", words)))
    return len(uses) * _ROW, shapes


def _boards(memory: MemoryMap) -> tuple[float, list[str]]:
    shapes: list[str] = []
    for row, fit in enumerate(memory.boards):
        shapes += _board(2 * row, fit)
    return 2 * len(memory.boards) * _ROW, shapes


def _board(row: int, fit: BoardFit) -> Iterator[str]:
    """Draw two bars, each the share of the board's budget that the model takes."""
    yield from _bar(
        row,
        f"{fit.board} ({fit.cpu}): RAM",
        (min(fit.ram_needed, fit.ram), fit.ram),
        "bar" if fit.ram_needed <= fit.ram else "over",
        _against(fit.ram_needed, fit.ram),
    )
    yield from _bar(
        row + 1,
        "flash",
        (min(fit.flash_needed, fit.flash), fit.flash),
        "bar" if fit.flash_needed <= fit.flash else "over",
        _against(fit.flash_needed, fit.flash),
    )


def _against(needed: int, budget: int) -> str:
    verdict = "fits" if needed <= budget else f"{needed - budget} missing"
    return f"{needed} of {budget}: {verdict}"


def _bar(row: int, label: str, part: tuple[int, int], kind: str, words: str) -> Iterator[str]:
    count, full = part
    room = _WIDTH - _LABEL - _NUMBER
    y = row * _ROW
    name = svg.fitting(label, _LABEL - 20, _CHARACTER)
    yield svg.text(_LABEL - 8, y + 12, name, text_anchor="end")
    for shape, width in (("room", room), (kind, room * count / max(full, 1))):
        yield svg.rectangle(_LABEL, y + 2, width, _ROW - 5, class_=shape)
    yield svg.text(_LABEL + room + 8, y + 12, words)


def _step(memory: MemoryMap, number: int) -> str:
    name = memory.steps[number] if number < len(memory.steps) else ""
    return f"step {number} {name}".rstrip()
