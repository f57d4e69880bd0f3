"""A firmware that speaks the protocol of EEMBC's EnergyRunner, on emulated microcontrollers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.building import request_for
from support.c_networks import two_outputs
from support.energyrunner import emulated_runner
from support.int8_layers import Case, layer
from support.needs import MICROCONTROLLERS, needs
from support.tflite_models import write_model

from edgekit.base.errors import UsageError
from edgekit.building.build import build
from edgekit.models.model import ModelSource
from edgekit.models.oracle import oracle_for

pytestmark = needs(*MICROCONTROLLERS)

BOARD = "mps2-an386"
INPUTS, OUTPUTS = 40, 5
SCALE = 0.037
RANDOM = np.random.default_rng(12)


def made(source: ModelSource, folder: Path) -> Path:
    """Build a model for the board, and return the firmware that the package holds."""
    request = replace(request_for(source.path, BOARD), code_format="energyrunner")
    bundle = build(request, folder / "bundle", isolated=False).bundle
    assert "energyrunner/firmware.elf" in {file.path for file in bundle.manifest.files}
    return folder / "bundle" / "energyrunner" / "firmware.elf"


def results(lines: list[str]) -> list[float]:
    (line,) = [line for line in lines if line.startswith("m-results-")]
    found = re.fullmatch(r"m-results-\[(.*)\]", line)
    assert found is not None
    return [float(number) for number in found[1].split(",")]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSource, Path]:
    folder = tmp_path_factory.mktemp("dense")
    case = Case("dense", INPUTS, OUTPUTS, zero=-128)
    source = write_model(folder, layer(case), "kws01.tflite")
    return source, made(source, folder)


def expected(source: ModelSource, stored: np.ndarray) -> list[float]:
    """Return what LiteRT computes, as real numbers."""
    from edgekit.models.model import signature_of

    (spec,) = signature_of(source).outputs
    (taken,) = signature_of(source).inputs
    values = oracle_for(source).run({taken.name: stored})[spec.name]
    assert spec.quantization is not None
    zero, scale = spec.quantization.zero_points[0], spec.quantization.scales[0]
    return [float(value) for value in (values.reshape(-1).astype(float) - zero) * scale]


def test_the_framework_gets_the_answers_that_it_knows(dense: tuple[ModelSource, Path]) -> None:
    source, firmware = dense
    pixels = RANDOM.integers(0, 256, INPUTS).astype("uint8")
    stored = (pixels.astype(int) - 128).astype("int8").reshape(1, INPUTS)
    with emulated_runner(firmware, BOARD) as runner:
        assert runner.lines() == ["m-init-done"]
        assert runner.ask("name") == ["m-name-dut-[edgekit-emulated]"]
        profile, model = runner.ask("profile")
        assert profile.startswith("m-profile-[ULPMark for tinyML")
        assert model == "m-model-[kws01]"
        runner.load(pixels.tobytes())
        said = runner.ask("infer 3 1")
        assert said[:3] == ["m-warmup-start-1", "m-warmup-done", "m-infer-start-3"]
        begun, ended = (int(line.removeprefix("m-lap-us-")) for line in said[3:5])
        assert ended > begun
        assert said[5] == "m-infer-done"
        assert results(said) == pytest.approx(expected(source, stored), abs=6e-4)
        assert results(runner.ask("results")) == results(said)
        (first,), (second,) = runner.ask("timestamp"), runner.ask("timestamp")
        assert int(second.removeprefix("m-lap-us-")) > int(first.removeprefix("m-lap-us-"))


def test_floats_are_quantised_as_the_model_wants_them(dense: tuple[ModelSource, Path]) -> None:
    """As the framework sends them for anomaly detection."""
    source, firmware = dense
    stored = RANDOM.integers(-128, 128, (1, INPUTS)).astype("int8")
    floats = ((stored.astype(float) + 128) * SCALE).astype("<f4")
    with emulated_runner(firmware, BOARD) as runner:
        runner.lines()
        runner.load(floats.tobytes())
        assert "".join(runner.ask("db print")).count("m-buffer-") == INPUTS // 8
        said = runner.ask("infer 1 0")
        assert results(said) == pytest.approx(expected(source, stored), abs=6e-4)
        runner.load(np.full(INPUTS, 1e9, "<f4").tobytes())
        highest = np.full((1, INPUTS), 127, "int8")
        assert results(runner.ask("infer")) == pytest.approx(expected(source, highest), abs=6e-4)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fly", "e-[Unknown command: fly]"),
        ("", "e-[Unknown command: ]"),
        ("infer 0", "e-[Inference iterations must be >0]"),
        ("infer 1 -1", "e-[Inference warmup must be >=0]"),
        ("infer 99999999999", "e-[Inference iterations must be >0]"),
        ("db", "e-[Command 'db' requires a subcommand]"),
        ("db load", "e-[Command 'db load' requires the # of bytes]"),
        ("db load 7", f"e-[The model takes {INPUTS} bytes]"),
        ("db abc", "e-[Insufficient number of hex digits]"),
        ("db zz", "e-[Invalid hex digit]"),
        ("x" * 500, f"e-[Unknown command: {'x' * 80}]"),
    ],
)
def test_what_is_no_command_has_an_answer_too(
    dense: tuple[ModelSource, Path], command: str, said: str
) -> None:
    with emulated_runner(dense[1], BOARD) as runner:
        runner.lines()
        assert runner.ask(command) == [said]
        assert runner.ask("name"), "it goes on"


def test_a_model_with_several_outputs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.onnx"
    onnx.save(two_outputs(), path)
    with pytest.raises(UsageError, match="two has 1 input and 2 outputs"):
        made(request_for(path, BOARD).source, tmp_path)
