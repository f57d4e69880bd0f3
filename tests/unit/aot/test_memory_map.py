"""Where a model's bytes go: what the map says, and what its drawing shows."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from edgekit.aot.memory_drawing import draw_memory_map
from edgekit.aot.memory_map import bare_metal_boards, memory_map
from edgekit.bundle.manifest_bare_metal import BareMetal, BufferEntry, StepEntry
from edgekit.profiles.board import Memory, load_board

_SVG = "{http://www.w3.org/2000/svg}"


def _step(name: str, constants: int) -> StepEntry:
    layers = (f"layer of {name}",)
    return StepEntry(name, layers, "Convolution", "edgekit", "", "", (), 0, constants, 96)


MODEL = BareMetal(
    name="net",
    arena_bytes=128,
    arena_bound=96,
    arena_note="",
    constant_bytes=700,
    flash_bytes=1000,
    stack_bytes=50,
    firmware_flash=300,
    firmware_ram=200,
    steps=(_step("first", 600), _step("second", 100), _step("third", 0)),
    buffers=(
        BufferEntry("x", "tensor", 0, 32, 0, 0),
        BufferEntry("y", "tensor", 32, 64, 0, 2),
        BufferEntry("second", "scratch", 96, 32, 1, 1),
    ),
    libraries=(),
)


def test_flash_is_told_by_layer_with_code_and_firmware_and_adds_up() -> None:
    memory = memory_map(MODEL, ())
    assert [(use.what, use.bytes) for use in memory.flash] == [
        ("first", 600),
        ("second", 100),
        ("code", 300),
        ("firmware", 300),
    ]
    assert memory.flash[0].layers == ("layer of first",)


def test_a_model_without_firmware_needs_its_own_stack_only() -> None:
    board = load_board("mps2-an386")
    (alone,) = memory_map(replace(MODEL, firmware_flash=0, firmware_ram=0), (board,)).boards
    (inside,) = memory_map(MODEL, (board,)).boards
    assert (alone.ram_needed, alone.flash_needed) == (178, 1000)
    assert (inside.ram_needed, inside.flash_needed) == (328, 1300)


def test_a_board_without_room_is_told_how_much_is_missing() -> None:
    board = load_board("mps2-an386")
    exact = replace(board, memory=Memory(328, 1300))
    small = replace(board, memory=Memory(300, 1024))
    fits, lacks = memory_map(MODEL, (exact, small)).boards
    assert fits.fits
    assert fits.verdict == "fits"
    assert not lacks.fits
    assert lacks.verdict == "28 B of RAM missing, 276 B of flash missing"


def test_every_bare_metal_profile_is_among_the_boards_and_no_other() -> None:
    names = [board.name for board in bare_metal_boards()]
    assert {"mps2-an386", "mps3-an547", "nrf52840-dk", "stm32f405"} <= set(names)
    assert "local" not in names
    assert "rpi4" not in names


def test_each_buffer_is_a_rectangle_at_its_place() -> None:
    drawn = ElementTree.fromstring(draw_memory_map(memory_map(MODEL, ())))
    boxes = {
        group.findtext(f"{_SVG}title"): group.find(f"{_SVG}rect")
        for group in drawn.iter(f"{_SVG}g")
        if group.find(f"{_SVG}title") is not None
    }
    x = boxes["x: 32 bytes at 0, step 0 first to step 0 first"]
    y = boxes["y: 64 bytes at 32, step 0 first to step 2 third"]
    scratch = boxes["scratch of second: 32 bytes at 96, step 1 second to step 1 second"]
    assert x is not None
    assert y is not None
    assert scratch is not None
    assert (x.get("class"), scratch.get("class")) == ("tensor", "scratch")
    height, width = float(x.get("height", 0)), float(x.get("width", 0))
    assert abs(float(y.get("height", 0)) - 2 * height) < 0.2
    assert abs(float(y.get("width", 0)) - 3 * width) < 0.2
    # Bytes from the bottom up: what begins at 32 ends where what begins at 0 has its top.
    assert abs(float(y.get("y", 0)) + 2 * height - float(x.get("y", 0))) < 0.2
    assert abs(float(scratch.get("x", 0)) - float(x.get("x", 0)) - width) < 0.2


def test_the_bound_is_a_line_at_its_height() -> None:
    drawn = ElementTree.fromstring(draw_memory_map(memory_map(MODEL, ())))
    line = next(line for line in drawn.iter(f"{_SVG}line") if line.get("class") == "bound")
    frame = next(box for box in drawn.iter(f"{_SVG}rect") if box.get("class") == "frame")
    assert float(line.get("y1", 0)) == float(frame.get("height", 0)) / 4


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_name_breaks_the_drawing_or_gets_a_script_into_it(buffer: str, layer: str) -> None:
    names = (f"<script>{buffer}", f"]]>&'\"{layer}")
    model = replace(
        MODEL,
        name=names[0],
        buffers=(BufferEntry(names[1], "tensor", 0, 128, 0, 2),),
        steps=(replace(_step(names[0], 5), layers=names),),
    )
    text = draw_memory_map(memory_map(model, bare_metal_boards()[:1]))
    tags = {element.tag for element in ElementTree.fromstring(text).iter()}
    assert tags <= {
        f"{_SVG}{tag}" for tag in ["svg", "style", "g", "rect", "line", "text", "title"]
    }


def test_a_model_of_many_layers_has_the_largest_drawn_and_the_rest_as_one_bar() -> None:
    steps = tuple(_step(f"step_{k}", 1000 + k) for k in range(300))
    text = draw_memory_map(memory_map(replace(MODEL, steps=steps), ()))
    assert "step_299: 1,299 bytes" in text
    assert "step_0: 1000 bytes" not in text
    assert "others" in text


def test_an_empty_model_is_drawn_too() -> None:
    empty = replace(MODEL, steps=(), buffers=(), arena_bytes=0, arena_bound=0)
    ElementTree.fromstring(draw_memory_map(memory_map(empty, ())))
