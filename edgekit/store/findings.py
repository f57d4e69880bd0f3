"""Findings as files that wait for the store: a session's start or end, candidates, a point of its
curve, regions. Everything read is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgekit.base.errors import InputError
from edgekit.store.checked import check_id, check_time, checked, wrong
from edgekit.store.runs import RegionCost
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession, Workload

_FORMAT = 1
_KEYS = {"format", "session", "workloads", "records", "progress", "regions"}
_NO_WORKLOAD: Mapping[str, object] = {
    "key": "", "target": "", "version": 0, "words": "", "module": None,
}  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """Parts that go into the store in one transaction."""

    session: TuningSession | None = None
    records: tuple[TuningRecord, ...] = ()
    progress: TuningProgress | None = None
    regions: tuple[RegionCost, ...] = ()


def to_text(findings: Findings) -> str:
    """Write findings as JSON, each long workload once. Raise InputError for what no store holds."""
    workloads = list(dict.fromkeys(record.workload for record in findings.records))
    places = {workload: place for place, workload in enumerate(workloads)}
    document = {
        "format": _FORMAT,
        "session": None if findings.session is None else asdict(findings.session),
        "workloads": [asdict(workload) for workload in workloads],
        "records": [
            {**asdict(replace(r, workload=workloads[0])), "workload": places[r.workload]}
            for r in findings.records
        ],
        "progress": None if findings.progress is None else asdict(findings.progress),
        "regions": [asdict(region) for region in findings.regions],
    }
    from_document(document)
    return json.dumps(document)


def from_document(document: object) -> Findings:
    """Read findings; raise InputError for anything that `to_text` does not write."""
    if not isinstance(document, Mapping) or set(document) != _KEYS:
        raise wrong("findings", "an object with the known keys")
    if document["format"] != _FORMAT:
        raise InputError(
            f"a file of findings is of format {document['format']!r}",
            hint="upgrade edgekit: a newer one wrote the file",
        )
    workloads = [checked(Workload, item, "workload") for item in _list(document, "workloads")]
    session, progress = document["session"], document["progress"]
    return Findings(
        session=None if session is None else _session(session),
        records=tuple(_record(item, workloads) for item in _list(document, "records")),
        progress=None if progress is None else _progress(progress),
        regions=tuple(_region(item) for item in _list(document, "regions")),
    )


def _region(document: object) -> RegionCost:
    region: RegionCost = checked(RegionCost, document, "region")
    check_time(region.measured_at, "region.measured_at")
    return region


def _session(document: object) -> TuningSession:
    session: TuningSession = checked(TuningSession, document, "session")
    check_id(session.id, "session.id")
    for name in ("started_at", "heard_at"):
        check_time(getattr(session, name), f"session.{name}")
    return session


def _progress(document: object) -> TuningProgress:
    progress: TuningProgress = checked(TuningProgress, document, "progress")
    check_id(progress.session, "progress.session")
    check_time(progress.at, "progress.at")
    return progress


def _record(document: object, workloads: Sequence[Workload]) -> TuningRecord:
    if not isinstance(document, Mapping):
        raise wrong("record", "an object")
    place = document.get("workload")
    if type(place) is not int or not 0 <= place < len(workloads):
        raise wrong("record.workload", "the number of a workload")
    plain: dict[Any, object] = {**document, "workload": _NO_WORKLOAD}
    record: TuningRecord = checked(TuningRecord, plain, "record")
    check_id(record.id, "record.id")
    if record.session is not None:
        check_id(record.session, "record.session")
    check_time(record.measured_at, "record.measured_at")
    return replace(record, workload=workloads[place])


def _list(document: Mapping[Any, object], key: str) -> list[object]:
    value = document[key]
    if not isinstance(value, list):
        raise wrong(key, "a list")
    return value
