"""int8 kernels for ARM boards, under QEMU: the numbers of LiteRT, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.compiling import assembly_of
from support.emulated_arm import CPUS, WITH_I8MM, build_and_run, write_board_with_i8mm
from support.int8_layers import LAYERS, Case, layer
from support.needs import ARM_PROGRAMS, needs
from support.tflite_models import write_model

from edgekit.models.model import import_model
from edgekit.profiles.board import load_board


def on_one_board_each() -> Iterator[Any]:
    """Each layer on one of the boards in turn; `make test-all` takes the others too."""
    for number, case in enumerate(LAYERS):
        for place, board in enumerate(CPUS):
            is_quick = number % len(CPUS) == place
            yield pytest.param(
                case,
                board,
                marks=() if is_quick else pytest.mark.slow,
                id=f"{number}-{case.kind}-{case.channels}-{board}",
            )


@needs(*ARM_PROGRAMS)
@pytest.mark.parametrize(("case", "board"), [*on_one_board_each()])
def test_a_layer_on_an_arm_cpu_gives_the_numbers_of_litert(
    case: Case, board: str, tmp_path: Path
) -> None:
    bundle, found = build_and_run(write_model(tmp_path, layer(case)).path, board, tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_array_equal(found, expected)
    wanted = "depthwise" if case.kind == "depthwise" else "int8"
    assert wanted in [kernel.rule for kernel in bundle.manifest.kernels]


PAIRED = (
    Case("conv", 64, 48, kernel=(3, 3), extreme=True, zero=-128),
    Case("conv", 16, 10, (9, 3), (3, 1)),
    Case("conv", 8, 24, (9, 11), (3, 3), dilations=(2, 2), batch=2, activation=1),
    Case("dense", 61, 33, batch=5),
)
"""Where two pixels lie side by side, and none has numbers that a group takes from the next."""
ALONE = (
    Case("conv", 64, 16, kernel=(3, 3), strides=(2, 2)),
    Case("conv", 3, 8, kernel=(3, 3)),
    Case("conv", 16, 10, (9, 1), (3, 1)),
    Case("dense", 64, 10, batch=1),
)


@needs(*ARM_PROGRAMS)
@pytest.mark.parametrize("case", PAIRED, ids=lambda case: f"{case.kind}-{case.channels}")
def test_two_pixels_at_once_give_the_numbers_of_litert(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_board_with_i8mm(tmp_path)
    monkeypatch.setenv("EDGEKIT_BOARD_PATH", str(tmp_path))
    model = write_model(tmp_path, layer(case)).path

    bundle, found = build_and_run(model, WITH_I8MM, tmp_path)

    (expected,) = bundle.reference_outputs().values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", [*PAIRED, *ALONE], ids=lambda case: f"{case.kind}-{case.channels}")
def test_pixels_go_in_pairs_where_there_are_two(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_board_with_i8mm(tmp_path)
    monkeypatch.setenv("EDGEKIT_BOARD_PATH", str(tmp_path))
    target = load_board(WITH_I8MM).target

    source = assembly_of(import_model(write_model(tmp_path, layer(case))), target)

    assert ("smmla" in source) == (case in PAIRED)
    assert ("sdot" in source) == (case in ALONE)
