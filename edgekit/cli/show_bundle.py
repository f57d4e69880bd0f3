"""What is in a bundle, as `edgekit inspect` shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.console import Console
from edgekit.wording import amount, size

if TYPE_CHECKING:
    from edgekit.manifest import Manifest

_SHOWN_OPERATORS = 4


def show_bundle(console: Console, path: Path) -> None:
    """The manifest, and what is offloaded; as JSON, the manifest itself."""
    from edgekit.bundle import open_bundle

    bundle = open_bundle(path)
    console.report(bundle.manifest, lambda: _render(console, bundle.manifest))


def _render(console: Console, manifest: Manifest) -> None:
    from edgekit.backends.report import offload_in_words

    total = sum(file.size for file in manifest.files)
    console.heading(f"{manifest.model.name} for {manifest.board.name}")
    console.fields(
        [
            ("model", f"{manifest.model.file} ({manifest.model.format})"),
            ("size", f"{size(total)} in {len(manifest.files)} files"),
            ("compiled by", manifest.toolchain.compiler),
            ("built with", f"edgekit {manifest.edgekit_version}, TVM {manifest.versions.tvm}"),
            ("expected outputs", f"by {manifest.oracle.name} {manifest.oracle.version}"),
            ("offloaded", offload_in_words(manifest.regions) or "nothing: TVM compiled everything"),
        ]
    )
    sides = (("inputs", manifest.inputs), ("outputs", manifest.outputs))
    for title, entries in sides:
        console.print()
        console.heading(title)
        rows = [(e.spec.name, e.spec.dtype, str(list(e.spec.shape))) for e in entries]
        console.table(("name", "dtype", "shape"), rows)
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
        )


def _few(operators: tuple[str, ...]) -> str:
    shown = ", ".join(dict.fromkeys(operators[:_SHOWN_OPERATORS]))
    return f"{shown} …" if len(operators) > _SHOWN_OPERATORS else shown
