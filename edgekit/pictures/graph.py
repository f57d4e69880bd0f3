"""The graph of a model: its layers with owner, time, share and memory, placed by ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from edgekit.backends.layout import Point, Size, lay_out
from edgekit.base.measurer import figure
from edgekit.base.wording import amount, exact_size, few, joined, percent, printable, size
from edgekit.bundle.manifest import Manifest
from edgekit.pictures.memory import alive_bytes
from edgekit.pictures.parts import OWN, Edge, Graph, Node, Part, table_of
from edgekit.pictures.steps import step_seconds
from edgekit.store.run_profile import RunStep
from edgekit.store.runs import BenchRun

if TYPE_CHECKING:
    from edgekit.backends.picture import Box

MOST_NODES = 4000
"""The most layers that are drawn: a browser moves more too slowly."""
_CHARACTER, _LINE = 7.2, 17.0
_WIDEST = 30
_PADDING = Size(28, 22)


@dataclass(frozen=True)
class Layer:
    """A box before it has a place."""

    names: tuple[str, ...]
    owner: str
    reads: tuple[int, ...]
    facts: tuple[tuple[str, str], ...]
    line: str = ""
    share: float = 0.0


def graph_part(manifest: Manifest | None, run: BenchRun | None, boxes: Sequence[Box] = ()) -> Part:
    """Draw the steps of a run with a profile, else those of a bundle, else a model's operators."""
    name, title = "graph", "Layers"
    text = "Each box is a step of the program; neighbouring layers are computed together."
    profile = None if run is None else run.profile
    if profile is not None and run is not None:
        layers = _of_run(run, profile.steps, _alive(manifest, profile.steps))
    elif manifest is not None:
        layers = _of_bundle(manifest)
        text += " `edgekit bench BUNDLE --profile` adds the times."
    elif boxes:
        layers = _of_model(boxes)
        text = (
            "Each box is an operator, with the library that would run it. `edgekit build` and "
            "`edgekit bench BUNDLE --profile` add times and memory."
        )
    else:
        missing = "`edgekit bench BUNDLE --profile` measures each step"
        return Part(name, title, text, missing=missing)
    if not layers:
        missing = (
            "the steps of this bundle do not say what they read: `edgekit build MODEL` makes one "
            "whose steps do, unless the model needs TVM's virtual machine"
        )
        return Part(name, title, text, missing=missing)
    columns = tuple(dict.fromkeys(key for layer in layers for key, _ in layer.facts))
    table = table_of(columns, ([dict(one.facts).get(key, "") for key in columns] for one in layers))
    if len(layers) > MOST_NODES:
        missing = f"{len(layers):,} layers are more than a picture shows; the table has all"
        return Part(name, title, text, table=table, missing=missing)
    return Part(name, title, text, table=table, graph=_placed(layers))


def _placed(layers: Sequence[Layer]) -> Graph:
    texts = [(_cut(few(layer.names)), *filter(None, (layer.line, layer.owner))) for layer in layers]
    sizes = [
        Size(
            max(map(len, lines)) * _CHARACTER + _PADDING.width,
            len(lines) * _LINE + _PADDING.height,
        )
        for lines in texts
    ]
    layout = lay_out(sizes, [layer.reads for layer in layers])
    return Graph(
        nodes=tuple(
            Node(
                *(lines[0], tuple(lines[1:]), layer.owner, layer.share),
                tuple((key, printable(value)) for key, value in layer.facts),
                *map(_rounded, (place.x, place.y, box.width, box.height)),
            )
            for layer, lines, box, place in zip(layers, texts, sizes, layout.places, strict=True)
        ),
        edges=tuple(Edge(*ends, _curve(points)) for ends, points in layout.routes.items()),
        owners=tuple(dict.fromkeys((OWN, *sorted(layer.owner for layer in layers)))),
        width=_rounded(layout.size.width),
        height=_rounded(layout.size.height),
    )


def _of_run(run: BenchRun, steps: Sequence[RunStep], alive: Sequence[int | None]) -> list[Layer]:
    shown = [step for step in steps if step.reads is not None]
    if not any(step.reads for step in shown) and len(shown) < len(steps):
        return []
    layers = []
    for step, memory in zip(steps, alive, strict=True):
        seconds = step_seconds(run, step)
        share = seconds / run.median if run.median else 0.0
        time = figure(seconds, run.unit, run.measured_by)
        facts = [
            ("layers", joined(step.layers or (step.name,))),
            ("run by", step.owner or OWN),
            ("kind", step.kind),
            ("time", time),
            ("share", percent(share)),
            *_sizes(step.bytes, step.operations, memory),
            ("step", step.name),
        ]
        line = f"{time} · {percent(share)}" if step.time else ""
        layers.append(
            _layer(step.layers or (step.name,), step.owner, step.reads, facts, line, share)
        )
    return layers


def _of_bundle(manifest: Manifest) -> list[Layer]:
    if manifest.bare_metal is not None:
        entries = manifest.bare_metal.steps
        if any(step.reads is None for step in entries):
            return []
        return [
            _layer(
                step.layers or (step.name,),
                step.maker,
                step.reads,
                [
                    ("layers", joined(step.layers or (step.name,))),
                    ("run by", step.maker),
                    ("operator", step.operator),
                    ("constants", exact_size(step.constant_bytes)),
                    ("alive in the arena", exact_size(step.alive_bytes)),
                    ("in floats because", step.reason),
                    ("step", step.name),
                ],
                size(step.constant_bytes),
            )
            for step in entries
        ]
    steps = manifest.steps
    if any(step.reads is None for step in steps):
        return []
    memory = _alive(manifest, steps)
    return [
        _layer(
            step.layers or (step.name,),
            step.owner,
            step.reads,
            [
                ("layers", joined(step.layers or (step.name,))),
                ("run by", step.owner or OWN),
                ("kind", step.kind),
                *_sizes(step.bytes, step.operations, alive),
                ("step", step.name),
            ],
            "" if step.bytes is None else size(step.bytes),
        )
        for step, alive in zip(steps, memory, strict=True)
    ]


def _of_model(boxes: Sequence[Box]) -> list[Layer]:
    return [
        _layer(
            box.nodes or box.operators,
            box.kind if box.kind != "operator" else box.backend or OWN,
            box.reads,
            [
                ("layers", joined(box.nodes or box.operators)),
                ("operators", joined(box.operators)),
                ("run by", "" if box.kind != "operator" else box.backend or OWN),
                ("why", box.reason),
                ("shape", "" if box.shape is None else " × ".join(map(str, box.shape))),
                ("multiply-accumulates", amount(box.macs) if box.macs else ""),
            ],
            few(box.operators) if box.nodes else "",
        )
        for box in boxes
    ]


def _sizes(
    moved: int | None, operations: int | None, alive: int | None
) -> Iterable[tuple[str, str]]:
    yield "reads and writes", "" if moved is None else exact_size(moved)
    yield "operations", "" if operations is None else amount(operations)
    yield "alive in the arena", "" if alive is None else exact_size(alive)


def _alive(manifest: Manifest | None, steps: Sequence[object]) -> Sequence[int | None]:
    """Return the bytes of the arena in use at each step; None where the plan is unknown."""
    arena = None if manifest is None else manifest.arena
    if manifest is None or arena is None or len(manifest.steps) > len(steps):
        return [None] * len(steps)
    known = alive_bytes(arena.buffers, len(manifest.steps))
    return [*known, *[None] * (len(steps) - len(known))]


def _layer(
    names: tuple[str, ...],
    owner: str,
    reads: tuple[int, ...] | None,
    facts: Iterable[tuple[str, str]],
    line: str = "",
    share: float = 0.0,
) -> Layer:
    known = tuple((key, value) for key, value in facts if value)
    return Layer(names, owner or OWN, reads or (), known, line, share)


def _curve(points: Sequence[Point]) -> str:
    words = [f"M{points[0].x:.1f} {points[0].y:.1f}"]
    for before, after in pairwise(points):
        middle = (before.y + after.y) / 2
        words.append(
            f"C{before.x:.1f} {middle:.1f} {after.x:.1f} {middle:.1f} {after.x:.1f} {after.y:.1f}"
        )
    return "".join(words)


def _cut(text: str) -> str:
    text = printable(text).replace("\n", " ")
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _rounded(value: float) -> float:
    return round(value, 1)
