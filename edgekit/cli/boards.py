"""edgekit boards: list, show, create and check board profiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edgekit.base.wording import clock_rate, size
from edgekit.cli.options import BOARD
from edgekit.cli.profile_commands import ProfileView, profile_group
from edgekit.profiles.board import Board, Memory, check_board, parse_board
from edgekit.profiles.cpu import Target
from edgekit.profiles.hardware import Firmware, Flash


def _row(board: Board) -> Sequence[object]:
    flash = None if board.memory.flash is None else size(board.memory.flash)
    offload = ", ".join(board.offload.default) or None
    return (board.kind, board.target.cpu, size(board.memory.ram), flash, offload, board.title)


def _fields(board: Board) -> Sequence[tuple[str, object]]:
    return [
        ("name", board.name),
        ("title", board.title),
        ("kind", board.kind),
        ("vendor", board.vendor_url or None),
        ("cpu", f"{board.cpu.name} ({board.cpu.arch}), cores: {board.cpu.cores}"),
        ("cpu features", ", ".join(board.cpu.features)),
        ("target", _target(board.target)),
        ("compiler flags", " ".join(board.cpu.compile_flags) or None),
        ("toolchain", board.toolchain),
        ("offload", _offload(board)),
        ("memory", _memory(board.memory)),
        *(
            ("region", f"{region.name}: {size(region.size)} at {region.start:#010x}, {region.use}")
            for region in board.memory.regions
        ),
        ("reached by", _transport(board)),
        ("firmware", _firmware(board.firmware) if board.firmware else None),
        ("written by", _flash(board.flash) if board.flash else None),
        ("emulated twin", _twin(board)),
    ]


def _target(target: Target) -> str:
    features = f" {','.join(target.features)}" if target.features else ""
    return f"{target.kind} {target.triple} {target.cpu}{features}"


def _offload(board: Board) -> str:
    first = ", ".join(board.offload.default) or "nothing"
    others = [name for name in board.offload.allowed if name not in board.offload.default]
    return f"{first} (also allowed: {', '.join(others)})" if others else first


def _memory(memory: Memory) -> str:
    ram = f"{size(memory.ram)} RAM"
    return ram if memory.flash is None else f"{ram}, {size(memory.flash)} flash"


def _transport(board: Board) -> str:
    baud = board.transport.baud
    if board.in_engine:
        return f"{' or '.join(board.transport.engines)}, on this machine"
    return board.transport.kind if baud is None else f"{board.transport.kind}, {baud} baud"


def _firmware(firmware: Firmware) -> str:
    known = f"{firmware.family} at {clock_rate(firmware.clock)}, {size(firmware.stack)} of stack"
    return f"{known}; never run on hardware" if firmware.untested else known


def _flash(flash: Flash) -> str:
    detail = ", ".join(flash.scripts) or flash.target
    return f"{flash.driver} ({detail})" if detail else flash.driver


def _twin(board: Board) -> str:
    from edgekit.twin.microcontroller import has_twin

    twin = board.twin
    if twin is None:
        return "none"
    if not board.has_os and not has_twin(board):
        return f"none: {twin.machine} has the same core and other memory"
    memory = f", {size(twin.memory)}" if twin.memory else ""
    return f"{twin.emulator}, machine {twin.machine}, CPU {twin.cpu}{memory}"


command = profile_group(
    ProfileView(
        kind="boards",
        noun="board",
        type=BOARD,
        parse=lambda folder: partial(parse_board, folder=folder),
        check=check_board,
        columns=("kind", "cpu", "RAM", "flash", "offload", "board"),
        right=("RAM", "flash"),
        spare=("flash", "kind"),
        row=_row,
        fields=_fields,
    )
)
