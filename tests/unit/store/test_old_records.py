"""What measured records of before the field, which they say by other fields or not at all."""

from __future__ import annotations

import json

import pytest
from support.stores import A_TARGET, a_cost, a_run, a_session

from edgekit.base.decode import encode
from edgekit.store.documents import from_document, run_from_document, written_document
from edgekit.store.findings import Findings, to_text
from edgekit.store.findings import from_document as findings_from
from edgekit.store.old_records import of_cost, of_run, of_session


@pytest.mark.parametrize(
    ("unit", "device", "measurer"),
    [
        ("instructions", "anything", "emulator"),
        ("cycles", "anything", "hardware"),
        ("seconds", "local", "hardware"),
        ("seconds", "rpi4", None),
    ],
)
def test_a_run_tells_by_its_unit_or_device_or_not(
    unit: str, device: str, measurer: str | None
) -> None:
    assert of_run(unit, device) == measurer
    old = encode(a_run(1, unit=unit, device=device))
    assert isinstance(old, dict)
    del old["measured_by"]
    assert run_from_document(old).measured_by == measurer
    document = {"format": "edgekit-results", "version": 1, "bench_runs": [old]}
    assert [run.measured_by for run in from_document(document)] == [measurer]


@pytest.mark.parametrize(
    ("target", "devices", "found"),
    [
        ('{"counted in": "instructions", "cpu": "cortex-m4"}', 1, ("emulator", "instructions")),
        ('{"counted in": "cycles", "cpu": "cortex-m4"}', 3, ("hardware", "seconds")),
        (json.dumps({"emulated": json.loads(A_TARGET)}), 2, ("emulator", "seconds")),
        (A_TARGET, 1, ("hardware", "seconds")),
        (A_TARGET, 2, (None, "seconds")),
        ("no JSON", 1, (None, "seconds")),
        ("[]", 1, (None, "seconds")),
    ],
)
def test_a_search_tells_by_its_target(
    target: str, devices: int, found: tuple[str | None, str]
) -> None:
    assert of_session(target, devices) == found
    session = a_session(target=target, devices=tuple(f"d{n}" for n in range(devices)))
    document = json.loads(to_text(Findings(session=session, regions=(a_cost(),))))
    for part in (document["session"], *document["regions"]):
        del part["measured_by"]
    del document["session"]["unit"]
    read = findings_from(document)
    assert read.session is not None
    assert (read.session.measured_by, read.session.unit) == found
    assert read.regions[0].measured_by == "hardware"


def test_costs_on_twins_have_a_name_of_their_own() -> None:
    assert of_cost("rpi4 (twin)") == "emulator"
    assert of_cost("rpi4") == "hardware"


def test_what_a_record_says_itself_is_believed() -> None:
    run = a_run(1, unit="seconds", device="local", measured_by="simulator")
    text = "".join(written_document([run]))
    assert from_document(json.loads(text)) == (run,)
