"""Put all that is known about a bundle, a run or a model into one report with pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.measurer import figure, measurer_in_words
from edgekit.base.quoting import html_document, html_text
from edgekit.base.report import Report
from edgekit.base.wording import amount, celsius, counted, energy, percent, size
from edgekit.pictures.graph import graph_part
from edgekit.pictures.history import energy_part, grouped, history_part
from edgekit.pictures.latencies import latencies_part
from edgekit.pictures.memory import memory_part
from edgekit.pictures.page import page_of
from edgekit.pictures.parts import Part
from edgekit.pictures.steps import roofline_part, shares_part, timeline_part
from edgekit.pictures.tuning import tuning_part
from edgekit.store.kept import Kept, kept_of_bundle, kept_of_model, kept_of_run

if TYPE_CHECKING:
    from edgekit.backends.picture import Box
    from edgekit.building.partition import Partitioned
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest import Manifest
    from edgekit.store.runs import BenchRun

_SHORT = 12
Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ModelReport(Report):
    """All that is known about a bundle, a run or a model, as data for pictures."""

    name: str
    """The name for a file."""
    about: Literal["bundle", "run", "model"]
    title: str
    facts: Facts
    parts: tuple[Part, ...]

    def headline(self) -> str:
        shown = [part.title.lower() for part in self.parts if part.charts or part.graph]
        return f"{self.title}: {', '.join(shown) or 'nothing is known yet'}"

    def to_html(self) -> str:
        """Return one page that needs no other file and no network."""
        return page_of(self.title, self.facts, self.parts)

    def write(self, path: Path) -> Path:
        """Write the page into a file."""
        with storage_errors("write the report", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self.to_html())
        return path

    def _repr_html_(self) -> str:
        """Return the page in a frame of a notebook, with nothing of the notebook's in reach."""
        return (
            f'<iframe title="{html_text(self.title)}" sandbox="allow-scripts" '
            'style="width:100%;height:48rem;border:0" '
            f'srcdoc="{html_document(self.to_html())}"></iframe>'
        )


def report_bundle(bundle: Bundle, store: str | None = None) -> ModelReport:
    """Report on a bundle and what the store keeps of it."""
    manifest = bundle.manifest
    model, board = manifest.model.name, manifest.board.name
    kept = kept_of_bundle(bundle.digest, model, board, store)
    weight = sum(file.size for file in manifest.files if not file.role.startswith("reference"))
    facts = (
        ("model", f"{model} ({manifest.model.format})"),
        ("board", board),
        ("bundle", bundle.digest[:_SHORT]),
        ("files for the board", size(weight)),
        ("built by", f"edgekit {manifest.edgekit_version}"),
        *_facts(kept.run),
    )
    title = f"{model} on {board}"
    return ModelReport(bundle.path.name, "bundle", title, facts, _parts(kept, manifest=manifest))


def report_run(name: str, store: str | None = None) -> ModelReport:
    """Report on a stored run: its id, a prefix of it, or `latest`."""
    run, kept = kept_of_run(name, store)
    build = run.build
    facts = (
        ("model", build.model),
        ("board", build.board),
        ("bundle", build.digest[:_SHORT]),
        ("built by", f"edgekit {build.edgekit_version}"),
        ("offload", ", ".join(build.offload) or "none"),
        *_facts(run),
    )
    title = f"{build.model} on {run.device}"
    return ModelReport(f"run-{run.id[:_SHORT]}", "run", title, facts, _parts(kept))


def report_model(found: Partitioned, store: str | None = None) -> ModelReport:
    """Report on a model that was partitioned for a board."""
    about = found.report
    kept = kept_of_model(about.model, about.board, store)
    coverage = about.coverage
    facts = (
        ("model", about.model),
        ("board", about.board),
        ("backends", ", ".join(about.backends) or "none"),
        ("operators", f"{coverage.operators:,}"),
        ("multiply-accumulates", amount(coverage.macs)),
        ("of them in libraries", percent(coverage.macs_share)),
        ("runs in the store", f"{len(kept.runs):,}"),
    )
    title = f"{about.model} for {about.board}"
    return ModelReport(about.model, "model", title, facts, _parts(kept, boxes=found.boxes))


def _parts(
    kept: Kept, *, manifest: Manifest | None = None, boxes: tuple[Box, ...] = ()
) -> tuple[Part, ...]:
    run, histories = kept.run, grouped(kept.runs)
    return (
        graph_part(manifest, run, boxes),
        shares_part(run),
        timeline_part(run),
        latencies_part(run),
        roofline_part(run),
        memory_part(manifest),
        energy_part(histories),
        tuning_part(kept.curves),
        history_part(histories),
    )


def _facts(run: BenchRun | None) -> Facts:
    if run is None:
        return (("measured", "not yet: `edgekit bench` does"),)
    conditions = run.conditions
    degrees = conditions.temperature_c
    facts = (
        ("median", figure(run.median, run.unit, run.measured_by)),
        ("p90", figure(run.p90, run.unit, run.measured_by)),
        ("measured", run.measured_at[:16].replace("T", " ")),
        ("on", f"{run.device}, {counted(conditions.threads, 'thread')}"),
        ("measured by", measurer_in_words(run.measured_by)),
        ("run", run.id[:_SHORT]),
        ("energy of an inference", "" if run.joules is None else energy(run.joules)),
        ("temperature", "" if degrees is None else celsius(degrees)),
        ("memory of the model", "" if run.model_peak is None else size(run.model_peak)),
        ("notes", "; ".join(run.notes)),
    )
    return tuple((name, value) for name, value in facts if value)
