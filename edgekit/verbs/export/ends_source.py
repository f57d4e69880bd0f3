"""Writes ends.c: [preprocess] and [postprocess] of a bundle as tables in C."""

from __future__ import annotations

from collections.abc import Iterable

from edgekit.base.errors import InputError
from edgekit.base.quoting import c_string, one_line
from edgekit.bundle.manifest import InputEntry, Manifest
from edgekit.models.ends.postprocess import Text
from edgekit.models.images import image_extent
from edgekit.version import __version__

_SOURCE = """\
/* Written by edgekit {version} out of the bundle's manifest. */
#include "ends.h"

static const char *const labels[] = {{{labels}NULL}};

const app_rule app_rules[] = {{
{rules}
}};
const int app_rules_count = {count};

const app_meanings app_means = {{
{means}
}};
"""
_NO_PICTURE = "    {0}"
_NAMES = ("scores", "classes", "boxes", "landmarks", "mask", "masks")


def ends_source(manifest: Manifest) -> str:
    """Return the text of ends.c."""
    section = manifest.postprocess
    labels = () if section is None else section.labels
    return _SOURCE.format(
        version=__version__,
        labels="".join(f"\n    {c_string(one_line(label))}," for label in labels),
        rules=",\n".join(map(_rule, manifest.inputs)),
        count=len(manifest.inputs),
        means=_fields(_means(manifest), "    "),
    )


def _rule(entry: InputEntry) -> str:
    """Return how a picture becomes an input."""
    rule, spec = entry.preprocess, entry.spec
    if rule is None:
        return _NO_PICTURE
    on_board = rule.on == "board"
    steps = spec.quantization
    if steps is not None and len(steps.scales) != 1:
        return _NO_PICTURE
    try:
        height, width = spec.shape[:2] if on_board else image_extent(spec, rule)
    except InputError:
        return _NO_PICTURE
    mean, std = (_each(values, rule.channels) for values in (rule.mean, rule.std))
    fields: list[tuple[str, object]] = [
        ("height", height),
        ("width", width),
        ("channels", rule.channels),
        ("resize", f"APP_{rule.resize.upper()}"),
        ("centred", int(rule.anchor == "center")),
        ("fill", round(rule.fill)),
        ("on_board", int(on_board)),
        ("reversed", int(rule.color == "bgr")),
        ("planes", int(rule.layout == "NCHW")),
        ("scale", repr(rule.scale)),
        ("mean", mean),
        ("std", std),
        ("dtype", c_string(spec.dtype)),
        ("step", repr(steps.scales[0]) if steps else 1),
        ("zero", steps.zero_points[0] if steps else 0),
    ]
    return f"    {{{_fields(fields, '     ').strip()}}}"


def _each(values: tuple[float, ...], channels: int) -> str:
    """Return numbers for each channel as an initializer."""
    return "{" + ", ".join(map(repr, values if len(values) > 1 else values * channels)) + "}"


def _means(manifest: Manifest) -> Iterable[tuple[str, object]]:
    """Return the fields of `app_means`."""
    section = manifest.postprocess
    if section is None:
        return [("task", "APP_NOTHING")]
    specs = [entry.spec for entry in manifest.outputs]
    places = {spec.name: place for place, spec in enumerate(specs) if spec.name in _NAMES}
    shapes = {spec.name: spec.shape for spec in specs}
    height, width = (shapes.get("masks") or shapes.get("mask") or (0, 0))[-2:]
    marks = shapes.get("landmarks")
    text = section if isinstance(section, Text) else None
    return [
        ("task", f"APP_{section.task.upper()}"),
        ("labels", "labels"),
        ("labels_count", len(section.labels)),
        *((name, places.get(name, -1)) for name in _NAMES),
        ("count", shapes["scores"][0] if "scores" in shapes else 0),
        ("points", marks[1] if marks else 0),
        ("mask_height", height),
        ("mask_width", width),
        ("blank", text.blank if text else -1),
        ("collapse", int(text.collapse) if text else 0),
    ]


def _fields(fields: Iterable[tuple[str, object]], indent: str) -> str:
    return ",\n".join(f"{indent}.{name} = {value}" for name, value in fields)
