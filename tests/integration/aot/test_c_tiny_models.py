"""The MLPerf Tiny int8 files as C: LiteRT's numbers, in integers alone, in less memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.c_builds import SANITIZED, built_tree, make

from benchmarks.model_zoo import MODELS, fetch
from edgekit.aot.generators import generators

pytestmark = pytest.mark.models

ARENAS = {
    "MLPerf Tiny keyword_spotting": 22_944,
    "MLPerf Tiny image_classification": 54_996,
    "MLPerf Tiny visual_wake_words": 165_344,
    "MLPerf Tiny anomaly_detection": 5_616,
}
"""Bytes that TensorFlow Lite Micro with CMSIS-NN takes on a Cortex-M4, with inputs and outputs."""


@pytest.mark.parametrize("name", ARENAS)
def test_a_tiny_model_in_c_equals_litert(name: str, tmp_path: Path) -> None:
    model = next(model for model in MODELS if model.name == name)
    built = built_tree(fetch(model), tmp_path / "c", offers=generators())
    tested = make(built.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "worst error 0: ok" in tested.stdout
    steps = built.compiled.plan.program.steps
    assert [step.name for step in steps if step.reason] == []
    makers = {choice.kernel.maker for choice in built.compiled.choices}
    assert "tvm" not in makers
    arena = built.compiled.plan.arena
    assert arena.bytes <= 1.02 * arena.bound
    assert arena.bytes < ARENAS[name]
