from __future__ import annotations

import pytest

from edgekit.base.errors import ModelError
from edgekit.base.shapes import Shape, largest, read_shape
from edgekit.base.tensors import OpenTensorSpec, Range
from edgekit.models.ranges import check_open, ranges_of

IDS = OpenTensorSpec("ids", "int64", ("batch", "seq"))
MASK = OpenTensorSpec("mask", "int64", ("batch", "seq"))
OTHER = OpenTensorSpec("other", "float32", ("?", "length", 8))


def found(specs: list[OpenTensorSpec], **given: str) -> dict[str, Shape]:
    shapes = {name: read_shape(text) for name, text in given.items()}
    sizes = {name: largest(shape) for name, shape in shapes.items()}
    named = {
        extent: size
        for spec in specs
        for extent, size in zip(spec.shape, sizes.get(spec.name, ()), strict=False)
    }
    for spec in specs:
        if spec.name not in sizes:
            sizes[spec.name] = tuple(int(named.get(extent, extent)) for extent in spec.shape)
    return ranges_of(specs, sizes, shapes)


def test_a_dimension_of_one_name_has_its_range_in_every_input() -> None:
    seq = Range(1, 512, "seq")

    assert found([IDS, MASK], ids="1x(1..512)") == {"ids": (1, seq), "mask": (1, seq)}


def test_inputs_share_the_range_that_the_user_names() -> None:
    n = Range(2, 9, "n")

    assert found([IDS, OTHER], ids="1x(n:2..9)", other="1x(n:2..9)x8") == {
        "ids": (1, n),
        "other": (1, n, 8),
    }


def test_a_users_name_counts_also_where_another_input_is_given_first() -> None:
    n = Range(2, 9, "n")

    assert found([IDS, MASK], ids="1x(2..9)", mask="1x(n:2..9)") == {
        "ids": (1, n),
        "mask": (1, n),
    }


def test_a_dimension_without_a_name_is_called_by_its_place() -> None:
    assert found([OTHER], other="(1..4)x2x8") == {"other": (Range(1, 4, "other_0"), 2, 8)}


def test_an_input_of_unknown_rank_takes_a_range() -> None:
    spec = OpenTensorSpec("x", "float32", ("...",))

    assert found([spec], x="1x(1..4)") == {"x": (1, Range(1, 4, "x_1"))}


def test_without_a_range_nothing_varies() -> None:
    assert found([IDS, MASK], ids="1x512") == {}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ids": "1x(1..9)", "mask": "1x(2..9)"}, r"'seq' is given as \(seq:1\.\.9\) and as"),
        ({"ids": "1x(1..9)", "mask": "1x9"}, r"'seq' is given as \(seq:1\.\.9\) and as 9"),
        ({"ids": "1x(n:1..9)", "mask": "1x(m:1..9)"}, "'seq' is given as 'n' and as 'm'"),
        ({"ids": "1x(n:1..9)", "other": "1x(n:1..8)x8"}, "'n' is given as"),
    ],
)
def test_two_sizes_for_one_name_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence) as caught:
        found([IDS, MASK, OTHER], **{"other": "1x2x8", **given})

    assert caught.value.hint


def test_a_dimension_that_the_file_fixes_takes_no_range() -> None:
    with pytest.raises(ModelError, match="dimension 2, which the file fixes at 8") as caught:
        check_open([OTHER], {"other": read_shape("1x2x(1..8)")})

    assert "?,length,8" in str(caught.value.hint)
