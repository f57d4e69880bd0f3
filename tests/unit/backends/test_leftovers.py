"""Which parts of a graph stay ONNX, and who may take them."""

from __future__ import annotations

import pytest
from onnx import helper

from edgekit.backends.plan import OffloadPlan, plan_offload
from edgekit.base.errors import OffloadRefusedError
from edgekit.building.choose import leftovers_of
from edgekit.building.product import OffloadWishes
from edgekit.building.products import product_of
from edgekit.models.onnx.leftover_parts import parts_of
from edgekit.profiles.board import load_board
from edgekit.profiles.offload import ProjectOffload

NODES = [
    helper.make_node("A", ["x"], ["a"]),
    helper.make_node("B", ["a"], ["b"]),
    helper.make_node("C", ["a", "b"], ["c"]),
    helper.make_node("D", ["c"], ["d"]),
]


def parts(*taken: int, inside: str = "") -> list[list[int]]:
    return parts_of(NODES, taken, lambda name: name in inside)


def test_neighbours_are_one_part_unless_compiled_code_stands_between_them() -> None:
    assert parts(0, 1, 2, 3) == [[0, 1, 2, 3]]
    assert parts(2, 3) == [[2, 3]]
    assert parts(0, 3) == [[0], [3]]
    apart = parts(0, 2)  # one call of both would make what B reads, and need what B makes
    assert apart == [[0], [2]]
    assert parts() == []


def test_a_value_that_can_not_leave_draws_in_its_readers_and_what_stands_between() -> None:
    assert parts(0, 2, inside="a") == [[0, 1, 2]]
    assert parts(2, inside="c") == [[2, 3]]


def test_the_backend_stands_last_and_is_never_chosen() -> None:
    board = load_board("rpi4")
    asked = plan_offload(board, ProjectOffload(), ("onnxruntime", "ncnn"))

    assert asked.backends == ("ncnn", "onnxruntime")
    assert leftovers_of(board, asked).wish == "taken"
    assert plan_offload(board, ProjectOffload()).backends == ()
    assert leftovers_of(board, OffloadPlan()).wish == "advised"
    assert leftovers_of(load_board("jetson-orin-jp7"), OffloadPlan()).wish == "refused"


def test_microcontrollers_refuse_it() -> None:
    board = load_board("nrf52840-dk")

    with pytest.raises(OffloadRefusedError, match="can't use kernels of onnxruntime"):
        product_of(board).plan(board, OffloadWishes(asked=("onnxruntime",)))
    assert leftovers_of(board, OffloadPlan()).wish == "refused"
