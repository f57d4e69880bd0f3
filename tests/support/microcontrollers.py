"""Emulated microcontrollers for tests, with a toy model in edgekit's own firmware."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from edgekit.aot.firmware.build import build_firmware
from edgekit.aot.firmware.firmware_file import FirmwareFile, read_firmware
from edgekit.devices.choice import device_for
from edgekit.devices.serial.client import Client
from edgekit.devices.serial.device import SerialDevice
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.toolchain import load_toolchain
from support.c_trees import write_c_tree
from support.needs import MICROCONTROLLERS, require

BOARDS = (
    *(
        "mps2-an385",
        "mps2-an386",
        "mps2-an500",
        "mps2-an505",
        "mps3-an547",
        "stm32f405",
        "microbit",
    ),
    "qemu-riscv32",
)
LIMIT_S = 300.0


def firmware_for(board: Board, folder: Path, *trees: Path) -> FirmwareFile:
    is_arm = board.cpu.arch != "riscv32"
    require(*(("gcc-arm",) if is_arm else ("gcc-riscv32", "picolibc")))
    built = build_firmware(trees, board, load_toolchain(board.toolchain), folder)
    return read_firmware(built.elf)


@lru_cache
def toy_firmware(board: str, count: int = 600, also: str = "") -> FirmwareFile:
    """3 x + 1 of `count` int8; its second step does what `also` says in C as well."""
    folder = Path(mkdtemp(prefix="edgekit-toy-"))
    return firmware_for(
        load_board(board), folder, write_c_tree(folder / "c", count=count, also=also)
    )


def emulated(board: str) -> SerialDevice:
    """The board's twin, running."""
    require(*MICROCONTROLLERS)
    device = device_for(load_board(board), twin=True)
    assert isinstance(device, SerialDevice)
    return device


def tripled(data: bytes) -> bytes:
    return bytes((3 * byte + 1) & 0xFF for byte in data)


def inference(client: Client, data: bytes, model: int = 0) -> bytes:
    client.write(model, 0, data)
    assert client.run(model, LIMIT_S).status == 0
    return client.read(model, 0, len(data))
