"""TFLite files that are damaged, hostile or beyond edgekit end in a sentence, never in a crash."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

from edgekit.base.errors import EdgekitError, ModelError, UnsupportedModelError
from edgekit.models.model import import_model, open_model, scan_model
from edgekit.models.tflite.file import read_tflite

SOUND = tflite_bytes(
    [
        T("x", (1, 4, 4, 2)),
        constant("w", np.ones((3, 3, 3, 2))),
        constant("b", np.zeros(3)),
        T("y", (1, 4, 4, 3)),
    ],
    [
        Op(
            "CONV_2D",
            ("x", "w", "b"),
            ("y",),
            {"table": "Conv2DOptions", "strideH": 1, "strideW": 1},
        )
    ],
    ["x"],
    ["y"],
)


def refused(folder: Path, content: bytes) -> ModelError:
    path = folder / "bad.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_tflite(path)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"abc", "3 bytes"),
        (b"This is not a model, but a letter.\n" * 9, "text file"),
        (bytes(range(256)), "identifier"),
        (SOUND[:4] + b"TFL2" + SOUND[8:], "identifier"),
    ],
)
def test_what_is_no_tflite_file_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    assert reason in refused(tmp_path, content).message


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_damaged(kept: float, tmp_path: Path) -> None:
    assert "damaged" in refused(tmp_path, SOUND[: int(len(SOUND) * kept)]).message


def test_a_root_far_outside_the_file_is_damaged(tmp_path: Path) -> None:
    wild = struct.pack("<I", 0xFFFFFFF0) + SOUND[4:]
    assert "points at byte" in refused(tmp_path, wild).message


@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    changes=st.lists(
        st.tuples(st.integers(8, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
def test_changed_bytes_end_in_a_file_or_a_sentence(
    changes: list[tuple[int, int]], tmp_path: Path
) -> None:
    content = bytearray(SOUND)
    for place, value in changes:
        content[place] = value
    path = tmp_path / "changed.tflite"
    path.write_bytes(content)
    try:
        scan_model(open_model(path))
    except EdgekitError as error:
        assert error.message
        assert error.hint


def test_a_custom_operator_is_named_with_its_place_and_the_others_counted(tmp_path: Path) -> None:
    content = tflite_bytes(
        [T("x", (4,)), T("a", (4,)), T("b", (4,)), T("c", (4,))],
        [
            Op("EXP", ("x",), ("a",)),
            Op("CUSTOM:Whirl", ("a",), ("b",)),
            Op("CUSTOM:Whirl", ("b",), ("c",)),
        ],
        ["x"],
        ["c"],
    )
    source = write_model(tmp_path, content)
    with pytest.raises(
        UnsupportedModelError, match=r"CUSTOM:Whirl \(operator 1, making 'b'\)"
    ) as e:
        import_model(source)
    assert "1 more" in e.value.message
    (entry,) = scan_model(source).unsupported
    assert (entry.name, entry.count) == ("CUSTOM:Whirl", 2)


def test_dynamic_range_quantisation_is_refused_with_its_name(tmp_path: Path) -> None:
    content = tflite_bytes(
        [
            T("x", (1, 4)),
            constant("w", np.ones((1, 4), "int8"), scale=0.1),
            T("y", (1, 4)),
        ],
        [Op("MUL", ("x", "w"), ("y",), {"table": "MulOptions"})],
        ["x"],
        ["y"],
    )
    with pytest.raises(UnsupportedModelError, match="dynamic range"):
        import_model(write_model(tmp_path, content))


def test_an_operator_that_wants_a_constant_says_which_tensor_is_none(tmp_path: Path) -> None:
    content = tflite_bytes(
        [T("x", (2, 3)), T("p", (2, 2), "int32"), T("y", (2, 3))],
        [Op("PAD", ("x", "p"), ("y",), {"table": "PadOptions"})],
        ["x", "p"],
        ["y"],
    )
    with pytest.raises(UnsupportedModelError, match=r"PAD \(operator 0.*'p' is computed"):
        import_model(write_model(tmp_path, content))


def test_the_scan_counts_operators_and_parameters(tmp_path: Path) -> None:
    scan = scan_model(write_model(tmp_path, SOUND))
    assert [(entry.name, entry.count) for entry in scan.operators] == [("CONV_2D", 1)]
    assert scan.parameters == 3 * 3 * 3 * 2 + 3
    assert scan.parameter_bytes == 4 * scan.parameters
    assert scan.unsupported == ()
