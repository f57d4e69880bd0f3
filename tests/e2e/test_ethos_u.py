"""A model with regions for an Ethos-U on an emulated board: docs/ethos-u.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.integer_cases import drawn
from support.needs import MICROCONTROLLERS, needs
from support.tflite_models import write_model
from support.twins import edgekit_json, remove_all_twins, twins_in

pytestmark = needs("ethos-u", *MICROCONTROLLERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accelerator", "system"),
    [
        ("ethos-u55-128", "Ethos_U55_High_End_Embedded"),
        ("ethos-u85-256", "Ethos_U85_SYS_Flash_High"),
    ],
)
def test_the_twin_in_the_firmware_gives_litert_s_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accelerator: str, system: str
) -> None:
    cases = (drawn("CONV_2D", seed) for seed in range(9))
    case = next(case for case in cases if case.feeds["x"].shape[0] == 1)
    source = write_model(tmp_path, case.content)
    monkeypatch.chdir(tmp_path)
    options = f'accelerator = "{accelerator}"\nsystem = "{system}"\n'
    (tmp_path / "edgekit.toml").write_text(f"schema = 1\n\n[offload.ethos-u]\n{options}")
    with twins_in(tmp_path / "cache"):
        report = edgekit_json(
            "deploy", str(source.path), "--board", "corstone-300", "--twin", "-o", "out"
        )
        remove_all_twins()

    assert report["verification"]["passed"] is True
    assert (tmp_path / "out/c/lib/ethos-u/edgekit_ethosu_twin.c").is_file()
