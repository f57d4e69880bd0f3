"""Prints the contents of a bundle for `edgekit inspect`."""

from __future__ import annotations

from pathlib import Path

from edgekit.base.wording import amount, counted, size
from edgekit.bundle.manifest import Manifest
from edgekit.bundle.manifest_bare_metal import BareMetal
from edgekit.bundle.manifest_oracle import oracle_in_words
from edgekit.bundle.manifest_vectors import vectors_in_words
from edgekit.cli.console import Console

_SHOWN_OPERATORS = 4


def show_bundle(console: Console, path: Path) -> None:
    """Print the manifest and what is offloaded; with --json the manifest itself."""
    from edgekit.bundle.folder import open_bundle

    bundle = open_bundle(path)
    console.report(bundle.manifest, lambda: _render(console, bundle.manifest))


def _render(console: Console, manifest: Manifest) -> None:
    from edgekit.building.products import product_in

    total = sum(file.size for file in manifest.files)
    console.heading(f"{manifest.model.name} for {manifest.board.name}")
    console.fields(
        [
            ("model", f"{manifest.model.file} ({manifest.model.format})"),
            ("size", f"{size(total)} in {counted(len(manifest.files), 'file')}"),
            ("compiled by", manifest.toolchain.compiler),
            ("built with", f"edgekit {manifest.edgekit_version}, TVM {manifest.versions.tvm}"),
            ("expected outputs", oracle_in_words(manifest.oracle)),
            ("reference vectors", vectors_in_words(manifest.vectors)),
            *((f"no vector {left.name}", left.reason) for left in manifest.left_out),
            *product_in(manifest).content_in_words(manifest),
        ]
    )
    sides = (("inputs", manifest.inputs), ("outputs", manifest.outputs))
    for title, entries in sides:
        console.print()
        console.heading(title)
        rows = [(e.spec.name, e.spec.dtype, e.spec.shape_in_words()) for e in entries]
        console.table(("name", "dtype", "shape"), rows)
    if manifest.bare_metal is not None:
        _render_steps(console, manifest.bare_metal)
    if manifest.regions:
        console.print()
        console.heading("regions")
        console.table(
            ("region", "backend", "operators", "MACs", "what", "why"),
            [
                (r.name, r.backend, len(r.operators), amount(r.macs), _few(r.operators), r.reason)
                for r in manifest.regions
            ],
            right=("operators", "MACs"),
            spare=("backend", "what"),
        )


def _render_steps(console: Console, c: BareMetal) -> None:
    console.print()
    console.heading("steps")
    console.table(
        ("step", "operator", "by", "constants", "scratch", "arena", "layers", "note"),
        [
            (
                s.name,
                s.operator,
                s.maker,
                f"{s.constant_bytes:,}",
                f"{s.scratch_bytes:,}",
                f"{s.alive_bytes:,}",
                _few(tuple(layer.partition(";")[0] for layer in s.layers)),
                s.note,
            )
            for s in c.steps
        ],
        right=("constants", "scratch", "arena"),
        spare=("scratch", "arena", "note", "by"),
    )


def _few(operators: tuple[str, ...]) -> str:
    shown = ", ".join(dict.fromkeys(operators[:_SHOWN_OPERATORS]))
    return f"{shown} …" if len(operators) > _SHOWN_OPERATORS else shown
