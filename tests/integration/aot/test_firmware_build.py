"""Firmware for every board that has one: it compiles without a warning, fits or says why not."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.c_trees import write_c_tree
from support.needs import needs

from edgekit.aot.firmware.build import build_firmware
from edgekit.aot.firmware.firmware_file import read_firmware
from edgekit.aot.firmware.memory import layout_of
from edgekit.aot.firmware.tree import read_tree
from edgekit.base.errors import BuildError, BundleError, MissingToolError, UsageError
from edgekit.profiles.board import board_names, load_board, toolchain_of
from edgekit.profiles.toolchain import load_toolchain

TOOLCHAIN = load_toolchain("arm-none-eabi")
BOARDS = [name for name in board_names() if load_board(name).firmware is not None]

pytestmark = needs("gcc-arm", "gcc-riscv32", "picolibc")


@pytest.mark.parametrize("name", BOARDS)
def test_a_firmware_lies_where_the_board_has_memory(name: str, tmp_path: Path) -> None:
    board = load_board(name)
    toolchain = toolchain_of(board)
    built = build_firmware([write_c_tree(tmp_path / "c")], board, toolchain, tmp_path / "out")

    layout = layout_of(board)
    symbols = _symbols(built.elf)
    first = symbols.get("vectors", symbols["reset_handler"])
    assert first == layout.boot.start + (256 if "boot_from_flash" in symbols else 0)
    assert symbols["ek_stack_start"] == layout.stack.start
    assert symbols["ek_stack_top"] - symbols["ek_stack_start"] == built.stack
    assert layout.arena.start <= symbols["ek_arena"] < layout.arena.start + layout.arena.size
    assert symbols["ek_arena"] % 16 == 0
    weights = next(symbols[symbol] for symbol in symbols if symbol == "weights")
    assert layout.weights.start <= weights < layout.weights.start + layout.weights.size
    assert built.flash < 6000
    assert built.ram - built.arena - built.stack < 2000


def _symbols(elf: Path) -> dict[str, int]:
    lines = subprocess.check_output(["nm", elf], text=True).splitlines()
    return {p[2]: int(p[0], 16) for line in lines if len(p := line.split()) == 3}


def _first_bytes(name: str, folder: Path) -> bytes:
    """What the flash of a board holds from its beginning."""
    board = load_board(name)
    built = build_firmware([write_c_tree(folder / "c")], board, toolchain_of(board), folder / "out")
    start = layout_of(board).boot.start
    return dict(read_firmware(built.elf).contents())[start]


def test_the_rp2040_starts_what_its_boot_loader_accepts(tmp_path: Path) -> None:
    """The checksum is of section 2.8.1.3.1 of its data sheet, computed bit by bit."""
    code = _first_bytes("rp2040", tmp_path)[:256]
    crc = 0xFFFFFFFF
    for byte in code[:252]:
        for bit in range(7, -1, -1):
            carry = (crc >> 31) ^ (byte >> bit & 1)
            crc = (crc << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 if carry else 0)
    assert crc == int.from_bytes(code[252:], "little")


@pytest.mark.parametrize(("name", "program"), [("rp2350", 0x1021), ("rp2350-riscv", 0x1101)])
def test_the_rp2350_finds_what_its_boot_loader_looks_for(
    name: str, program: int, tmp_path: Path
) -> None:
    words = struct.unpack("<1024I", _first_bytes(name, tmp_path)[:4096].ljust(4096, b"\0"))
    at = words.index(0xFFFFDED3)
    assert words[at + 1 : at + 5] == (program << 16 | 0x142, 0x1FF, 0, 0xAB123579)


def test_sizes_are_those_that_the_toolchain_tells(tmp_path: Path) -> None:
    board = load_board("stm32f405")
    built = build_firmware([write_c_tree(tmp_path / "c")], board, TOOLCHAIN, tmp_path / "out")
    said = subprocess.check_output(["arm-none-eabi-size", built.elf], text=True).splitlines()[1]
    text, data, bss = (int(word) for word in said.split()[:3])
    assert built.flash == pytest.approx(text + data, abs=64)
    assert built.ram == pytest.approx(data + bss, abs=64)
    note = subprocess.check_output(["arm-none-eabi-readelf", "-n", built.elf], text=True)
    assert f"Build ID: {built.build_id}" in note


def test_the_bytes_do_not_depend_on_the_place(tmp_path: Path) -> None:
    board = load_board("mps3-an547")
    firmware = [
        build_firmware(
            [write_c_tree(tmp_path / place / "c")], board, TOOLCHAIN, tmp_path / place / "out"
        )
        for place in ("here", "there/deeper")
    ]
    assert firmware[0].elf.read_bytes() == firmware[1].elf.read_bytes()
    assert str(tmp_path).encode() not in firmware[0].elf.read_bytes()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"weights": 1_100_000}, r"weights and code exceed the 1 MiB of flash by 5\d\.\d KiB"),
        ({"count": 130_000}, r"arena and stack exceed the 128 KiB of ram by \d"),
    ],
)
def test_a_model_that_does_not_fit_is_one_sentence(
    model: dict[str, int], said: str, tmp_path: Path
) -> None:
    board = load_board("stm32f405")
    with pytest.raises(BuildError) as caught:
        build_firmware(
            [write_c_tree(tmp_path / "c", **model)],  # type: ignore[arg-type]
            board,
            TOOLCHAIN,
            tmp_path / "out",
        )
    assert re.search(f"the model does not fit on stm32f405: {said}", caught.value.message), (
        caught.value.message
    )
    assert caught.value.hint


def test_a_warning_in_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"compile toy\.c"):
        build_firmware(
            [write_c_tree(tmp_path / "c", also="int unused;")],
            load_board("mps2-an386"),
            TOOLCHAIN,
            tmp_path / "out",
        )


def test_a_missing_toolchain_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingToolError, match="needs arm-none-eabi-gcc"):
        build_firmware(
            [write_c_tree(tmp_path / "c")], load_board("mps2-an386"), TOOLCHAIN, tmp_path / "out"
        )


def test_a_board_without_a_firmware_is_told(tmp_path: Path) -> None:
    bare = replace(load_board("mps2-an386"), firmware=None)
    with pytest.raises(UsageError, match="no firmware for the board mps2-an386"):
        build_firmware([write_c_tree(tmp_path / "c")], bare, TOOLCHAIN, tmp_path / "out")


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    trees = [write_c_tree(tmp_path / folder) for folder in "ab"]
    with pytest.raises(UsageError, match="two models of one firmware are called toy"):
        build_firmware(trees, load_board("mps2-an386"), TOOLCHAIN, tmp_path / "out")


def test_a_folder_without_a_model_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c/other.h").write_text("int main(void);\n")
    with pytest.raises(BuildError, match="holds no model in C"):
        read_tree(tmp_path / "c")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x01\x01\x01" + bytes(200)])
def test_what_is_no_firmware_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "firmware.elf").write_bytes(content)
    with pytest.raises(BundleError, match="no firmware of edgekit's"):
        read_firmware(tmp_path / "firmware.elf")


def test_a_firmware_that_is_cut_short_is_told(tmp_path: Path) -> None:
    board = load_board("mps2-an386")
    built = build_firmware([write_c_tree(tmp_path / "c")], board, TOOLCHAIN, tmp_path / "out")
    whole = built.elf.read_bytes()
    file = tmp_path / "cut.elf"
    for size in range(0, len(whole), len(whole) // 40):
        file.write_bytes(whole[:size])
        with pytest.raises(BundleError):
            read_firmware(file)
