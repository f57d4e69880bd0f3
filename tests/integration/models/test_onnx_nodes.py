"""ONNX's own node cases: none wrong, none crashing, and what worked goes on working.

`make test` runs every 48th case, `make test-varied` every twelfth and those that were wrong once,
`make node-tests` all of them.
`onnx_node_expectations.json` holds the verdict of every case. A case that is right where it was
expected to be refused fails too: rewrite the file with

    python benchmarks/onnx_nodes.py \\
        --expectations tests/integration/models/onnx_node_expectations.json
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from support.examples import one_of
from support.onnx_nodes import verdicts
from support.patience import LIMITS_S

from benchmarks.forked import run_each

EXPECTATIONS = Path(__file__).with_name("onnx_node_expectations.json")
ENOUGH_RIGHT = 1750


def expected() -> dict[str, str]:
    refused = set(json.loads(EXPECTATIONS.read_text())["refused"])
    right = set(json.loads(EXPECTATIONS.read_text())["right"])
    return dict.fromkeys(refused, "refused") | dict.fromkeys(right, "right")


def different(found: dict[str, str]) -> dict[str, str]:
    """Cases that came out otherwise; those that a newer onnx adds may only be right or refused."""
    known = expected()
    return {
        case: f"{verdict}, expected {known.get(case, 'right or refused')}"
        for case, verdict in found.items()
        if verdict != known.get(case, verdict if verdict in ("right", "refused") else "")
    }


@pytest.mark.parametrize("which", one_of("--sample 48", "--sample 12 --once-wrong"))
def test_a_sample_of_the_node_cases_comes_out_as_expected(which: str, tmp_path: Path) -> None:
    found = verdicts(tmp_path, *which.split())
    assert len(found) > 30
    assert different(found) == {}


def test_a_case_that_dies_or_hangs_costs_itself_only() -> None:
    def case(number: int) -> int:
        if number == 1:
            os._exit(3)
        if number == 2:
            time.sleep(600)
        return number

    for limit in LIMITS_S:  # on a busy machine a case that ends may be too late for the first
        found = dict(run_each(case, range(5), 2, limit))
        if [found[0], found[3], found[4]] == [0, 3, 4]:
            break

    assert found == {
        0: 0,
        1: "the process died with exit code 3",
        2: f"still running after {limit} s",
        3: 3,
        4: 4,
    }


@pytest.mark.nodes
def test_all_node_cases_come_out_as_expected(tmp_path: Path) -> None:
    found = verdicts(tmp_path)
    assert different(found) == {}
    assert list(found.values()).count("right") >= ENOUGH_RIGHT
