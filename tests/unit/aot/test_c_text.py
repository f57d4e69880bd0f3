"""What C says is exactly what was meant."""

from __future__ import annotations

import math
import re
import struct
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgekit.aot.c_text import float_text, integer_text, values_text
from edgekit.aot.names import Unique, identifier, is_identifier, layer_identifier


@given(st.floats(width=32))
def test_a_float_literal_is_the_float(value: float) -> None:
    text = float_text(value, "float32")
    if math.isnan(value):
        assert text == "NAN"
        return
    if math.isinf(value):
        assert text.removeprefix("-") == "INFINITY"
        return
    assert text.endswith("f")
    number = text[:-1]
    read = float.fromhex(number) if "x" in number else float(number)
    assert struct.pack("<f", read) == struct.pack("<f", value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_literal_is_the_double(value: float) -> None:
    text = float_text(value, "float64")
    read = float.fromhex(text) if "x" in text else float(text)
    assert struct.pack("<d", read) == struct.pack("<d", value)


def test_the_least_integers_are_no_overflow_of_a_literal() -> None:
    assert integer_text(-(1 << 31), "int32") == "INT32_MIN"
    assert integer_text(-(1 << 63), "int64") == "INT64_MIN"
    assert integer_text(-128, "int8") == "-128"
    assert integer_text((1 << 32) - 1, "uint32") == "4294967295u"


def test_an_array_is_written_whole_in_lines_that_can_be_read() -> None:
    lines = list(values_text(np.arange(-100, 100, dtype=np.int8)))
    assert [int(word) for line in lines for word in line.split(",") if word.strip()] == list(
        range(-100, 100)
    )
    assert max(map(len, lines)) <= 100


@given(st.text())
def test_an_identifier_is_one(text: str) -> None:
    name = identifier(text)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", layer_identifier(text))


def test_words_of_c_and_of_its_library_are_no_identifiers() -> None:
    for word in ("int", "exp", "linux", "y1", "Double", "memcpy"):
        assert identifier(word) != word
        assert not is_identifier(word)
    assert is_identifier("kws_v2")
    assert not is_identifier("2kws")
    assert not is_identifier("a-b")


def test_a_layer_is_called_after_the_end_of_its_path() -> None:
    path = "a_very_long_name_of_a_model/stage_one_of_several/block_3/expand"
    assert layer_identifier(path) == "stage_one_of_several_block_3_expand"
    assert layer_identifier("") == "unnamed"
    assert layer_identifier("/features/conv") == "features_conv"


def test_of_fused_layers_the_one_with_weights_gives_the_name() -> None:
    fused = "model/act_2/Relu;model/bn_2/FusedBatchNormV3;model/conv2d_1/BiasAdd;model/c/Conv2D1"
    assert layer_identifier(fused) == "conv2d_1"
    assert layer_identifier("model/activation_4/Relu;model/add_1/add") == "add_1"
    assert layer_identifier("model/dense/MatMul;model/dense/BiasAdd") == "dense"
    assert layer_identifier("Identity") == "identity"


def test_names_are_handed_out_once() -> None:
    unique = Unique(("run",))
    assert [unique.name("run"), unique.name("conv"), unique.name("conv")] == [
        "run_2",
        "conv",
        "conv_2",
    ]


def test_values_are_objects_for_a_moment_only() -> None:
    """Write 200,000 values, whose objects and words would take 18 MB at once."""
    array = np.linspace(-1, 1, 200_000, dtype=np.float32)
    tracemalloc.start()
    words = sum(line.count(",") for line in values_text(array))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert words == array.size
    assert most < 5 << 20
