"""The MLPerf Tiny int8 models on emulated processors: LiteRT's numbers, in few instructions."""

from __future__ import annotations

import pytest
from support.needs import CORTEX_M, needs

from benchmarks.mcu import FAMILY, PEER, measure
from benchmarks.model_zoo import MODELS, fetch
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import import_model, open_model
from edgekit.models.oracle import oracle_for

pytestmark = needs(*CORTEX_M)

AIMS = {
    "keyword_spotting": {"M4": 5.5, "M55": 1.6},
    "image_classification": {"M4": 22.0, "M55": 4.5},
    "visual_wake_words": {"M4": 18.0, "M55": 6.0},
    "anomaly_detection": {"M4": 0.6, "M55": 0.15},
}
"""Millions of instructions."""
MOST_BEYOND_CONSTANTS = 26_000
"""Bytes of code and C library, of the largest of the four."""


@pytest.mark.models
@pytest.mark.parametrize("cpu", ["M4", "M55"])
@pytest.mark.parametrize("name", AIMS)
def test_a_tiny_model_is_exact_small_and_fast(name: str, cpu: str) -> None:
    source = open_model(fetch(next(model for model in MODELS if model.name == FAMILY + name)))
    model = import_model(source)
    outputs = oracle_for(source).run(reference_inputs(model.inputs, 0))
    row = measure(name, model, outputs, cpu, (), False)
    assert row.steps_apart == 0
    assert row.instructions < AIMS[name][cpu] * 1e6
    assert row.arena <= 1.02 * row.bound
    assert row.arena < PEER[name][1]
    assert row.flash - row.constants < MOST_BEYOND_CONSTANTS


@pytest.mark.models
@pytest.mark.parametrize("name", ["keyword_spotting", "image_classification"])
def test_cmsis_nn_alone_is_exact_and_half_of_what_bakenn_takes(name: str) -> None:
    source = open_model(fetch(next(model for model in MODELS if model.name == FAMILY + name)))
    model = import_model(source)
    outputs = oracle_for(source).run(reference_inputs(model.inputs, 0))
    row = measure(name, model, outputs, "M4", ("cmsis-nn",), True)
    assert row.steps_apart == 0
    assert any(layer.maker == "cmsis-nn" for layer in row.layers)
    bakenn = {"keyword_spotting": 22.1, "image_classification": 79.6}
    assert row.instructions < bakenn[name] / 2 * 1e6
