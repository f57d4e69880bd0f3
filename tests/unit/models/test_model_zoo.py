"""The table of real models: which there are, how results are kept, and what the page says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import model_results
from benchmarks.model_results import CRASH, RIGHT, WRONG, Results, Times, Verdict
from benchmarks.model_zoo import MODELS, PACKAGES, Package, ZooModel
from benchmarks.models import inputs_for

MAGIKA = next(model for model in MODELS if model.name == "magika")
JUDGED = Verdict(RIGHT, "code", "2026-01-02", "ONNX 15", 60, 12, 1_000_000, error="1.0e-06")
TIMED = Times(0.002, (0.5, 0.7, 0.6), "code", "2026-01-03", "a machine")


def test_there_are_real_models_of_many_packages_in_every_field() -> None:
    assert len(MODELS) >= 60
    assert len({model.package.name for model in MODELS}) >= 25
    assert {model.package.name for model in MODELS} == set(PACKAGES)
    assert {model.section for model in MODELS} == set(model_results.SECTIONS)


def test_no_two_models_are_one_file_of_the_cache_or_one_row() -> None:
    assert len({(model.package.sha256, model.file) for model in MODELS}) == len(MODELS)
    assert len({Results(Path("run.json")).bundle(model) for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize("package", PACKAGES.values(), ids=lambda package: package.name)
def test_packages_are_pinned(package: Package) -> None:
    assert len(package.sha256) == 64
    assert "==" in package.requirement


def test_results_are_read_again_and_a_new_verdict_makes_times_stale(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    kept = Results(file)
    kept.add("magika", JUDGED)
    assert kept.untimed([MAGIKA]) == [MAGIKA]
    kept.add("magika", TIMED)

    again = Results(file)
    assert (again.verdicts, again.times) == ({"magika": JUDGED}, {"magika": TIMED})
    assert again.untimed([MAGIKA]) == []
    assert again.unjudged([MAGIKA]) == [MAGIKA], "the verdict is of other code"

    again.add("magika", replace(JUDGED, code=model_results.code()))
    assert again.unjudged([MAGIKA]) == []
    assert again.untimed([MAGIKA]) == [MAGIKA]


def test_what_is_refused_or_wrong_is_not_timed() -> None:
    for result in (f"{WRONG}: y is off by 1", f"{CRASH}: KeyError", "no rule for If"):
        kept = Results(None)
        kept.add("magika", replace(JUDGED, result=result))
        assert kept.untimed([MAGIKA]) == []


def test_the_page_counts_what_is_right_and_names_what_is_missing() -> None:
    kept = Results(None)
    kept.add("magika", JUDGED)
    kept.add("magika", TIMED)
    kept.add("RetinaFace MobileNet0.25", replace(JUDGED, result=f"{WRONG}: y is off by 1"))

    text = model_results.page(kept)

    assert "2 models of 2 packages: 1 right, 1 wrong, 0 refused with a reason." in text
    assert "Of 1 that were timed, 1 are faster" in text
    assert "| magika | magika | ONNX 15 | 60 (12) |" in text
    assert "| 2 | 0.60 (0.50 to 0.70) |" in text
    assert "Not built yet: MobileNetV2, " in text
    assert text.index("## Images") < text.index("## Text")
    assert "Outdated" in text, "the rows are of other code"


def test_inputs_that_stand_for_classes_hold_whole_numbers_of_their_range() -> None:
    from edgekit.base.tensors import TensorSpec

    model = ZooModel("x", "x.onnx", MAGIKA.package, MAGIKA.extract, ranges={"ids": (3, 5)})
    inputs = inputs_for(model, [TensorSpec("ids", "float32", (1, 500))], 1)

    assert inputs["ids"].dtype == "float32"
    assert set(inputs["ids"].ravel().tolist()) == {3.0, 4.0, 5.0}
