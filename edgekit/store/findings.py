"""Findings as files that wait for the store: a session's start or end, candidates, a point of its
curve, regions, evaluations. Everything read is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.base.decode import encode, show
from edgekit.base.errors import InputError
from edgekit.store.documents import checked
from edgekit.store.old_records import regions_with_measurer, session_with_measurer
from edgekit.store.runs import Evaluation, RegionCost
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession

_FORMAT = 1


@dataclass(frozen=True)
class Findings:
    """Parts that go into the store in one transaction."""

    session: TuningSession | None = None
    records: tuple[TuningRecord, ...] = ()
    progress: TuningProgress | None = None
    regions: tuple[RegionCost, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class _Document:
    """The file. It holds each long workload once, and its records name them by number."""

    format: int
    session: object
    workloads: tuple[object, ...]
    records: tuple[Mapping[str, object], ...]
    progress: object
    regions: object
    evaluations: object


def to_text(findings: Findings) -> str:
    """Write findings as JSON. Raise InputError for what no store holds."""
    workloads = list(dict.fromkeys(record.workload for record in findings.records))
    places = {workload: place for place, workload in enumerate(workloads)}
    records = [{**vars(r), "workload": places[r.workload]} for r in findings.records]
    parts = {**vars(findings), "workloads": workloads, "records": records}
    document = encode({"format": _FORMAT, **parts})
    from_document(document)
    return json.dumps(document)


def from_document(document: object) -> Findings:
    """Read findings; raise InputError for anything that `to_text` does not write."""
    if isinstance(document, Mapping):
        document = {"evaluations": [], **document}  # older files have none
    file = checked(_Document, document)
    if file.format != _FORMAT:
        raise InputError(
            f"a file of findings is of format {file.format}",
            hint="upgrade edgekit: a newer one wrote the file",
        )
    records = []
    for record in file.records:
        place = record.get("workload")
        if type(place) is not int or not 0 <= place < len(file.workloads):
            raise InputError(
                f"a record in the file of findings names a missing workload: {show(place)}",
                hint="export it again, and don't edit it",
            )
        records.append({**record, "workload": file.workloads[place]})
    parts = {
        "session": session_with_measurer(file.session),
        "progress": file.progress,
        "regions": regions_with_measurer(file.regions),
        "evaluations": file.evaluations,
    }
    return checked(Findings, {**parts, "records": records})
