"""What flash tools said, and the sentence that edgekit makes of it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.errors import BundleError, DeviceError
from edgekit.devices.flash import emulator, uf2
from edgekit.devices.flash.image import one_image, uf2_blocks
from edgekit.devices.flash.job import Failure, FlashJob, explained
from edgekit.devices.flash.programs import OPENOCD, PYOCD, STM32LOADER
from edgekit.profiles.board import load_board
from edgekit.profiles.hardware import Flash

BOARD = load_board("stm32f746g-disco")

_CASES: tuple[tuple[str, tuple[Failure, ...], str, str], ...] = (
    (
        "no probe",
        OPENOCD.failures,
        "Error: open failed\n** OpenOCD init failed **",
        "no debug probe",
    ),
    (
        "no CMSIS-DAP",
        OPENOCD.failures,
        "Error: unable to find a matching CMSIS-DAP device\n** OpenOCD init failed **",
        "no debug probe",
    ),
    ("no J-Link", OPENOCD.failures, "Error: No J-Link device found", "no debug probe"),
    (
        "no rights",
        OPENOCD.failures,
        "Error: libusb_open() failed with LIBUSB_ERROR_ACCESS\nError: open failed",
        "this user may not use the debug probe",
    ),
    (
        "taken",
        OPENOCD.failures,
        "Error: libusb_claim_interface() failed with LIBUSB_ERROR_BUSY\nError: open failed",
        "in use by another program",
    ),
    (
        "other chip",
        OPENOCD.failures,
        "Info : STLINK V2J37M26\nWarn : UNEXPECTED idcode: 0x2ba01477\n"
        "Error: expected 1 of 1: 0x5ba02477\n** OpenOCD init failed **",
        "is not that of a",
    ),
    (
        "verify",
        OPENOCD.failures,
        "** Programming Finished **\n** Verify Started **\nError: checksum mismatch - attempting "
        "binary compare\n** Verify Failed **",
        "differs from the one written",
    ),
    (
        "locked",
        OPENOCD.failures,
        "Error: stm32x device protected\nError: failed erasing sectors 0 to 1\n"
        "** Programming Failed **",
        "is locked",
    ),
    (
        "no chip",
        OPENOCD.failures,
        "Error: target voltage may be too low for reliable debugging\n"
        "Error: init mode failed (unable to connect to the target)",
        "finds no chip",
    ),
    (
        "no script",
        OPENOCD.failures,
        "embedded:startup.tcl:28: Error: Can't find board/mine.cfg",
        "OpenOCD lacks a script",
    ),
    (
        "no probe",
        PYOCD.failures,
        "No connected debug probes\n0002715 E No target device available [load_cmd]",
        "no debug probe",
    ),
    (
        "unknown chip",
        PYOCD.failures,
        "0000512 C Target type nrf99 not recognized. Use 'pyocd list --targets' to see currently "
        "available target types.",
        "pyOCD does not know the chip",
    ),
    (
        "locked",
        PYOCD.failures,
        "0000741 W NRF52840 APPROTECT enabled: not automatically unlocking [target_nRF52]",
        "is locked",
    ),
    ("no answer", PYOCD.failures, "0000690 C Unexpected ACK '7' [__main__]", "finds no chip"),
    (
        "no boot loader",
        STM32LOADER.failures,
        "Activating bootloader (select UART)\nBootloader activation timeout -- retrying\n"
        "Can't init into bootloader. Ensure that BOOT0 is enabled and reset the device.",
        "no boot loader answers",
    ),
    (
        "no port",
        STM32LOADER.failures,
        "[Errno 2] could not open port /dev/ttyUSB0: [Errno 2] No such file or directory: "
        "'/dev/ttyUSB0'",
        "can't be opened",
    ),
    (
        "verify",
        STM32LOADER.failures,
        "Verification FAILED: Verification data does not match read data.\n"
        "First mismatch at address: 0x8000010 read 0x0 vs 0x1 expected.",
        "differs from the one written",
    ),
    (
        "locked",
        STM32LOADER.failures,
        "stm32loader.bootloader.CommandError: NACK 0x31 address failed",
        "is locked",
    ),
    (
        "killed",
        emulator.FAILURES,
        "Loading section .text, size 0x1\nRemote connection closed\n"
        "Section .text, range 0x0 -- 0x1: matched.",
        "the emulator of wing ended",
    ),
    (
        "was not running",
        emulator.FAILURES,
        "gdb: Connection refused.\nYou can't do that when your target is `exec'",
        "the emulator of wing ended",
    ),
    (
        "differs",
        emulator.FAILURES,
        "Transfer rate: 900 KB/sec\nSection .data, range 0x0 -- 0x1: MIS-MATCHED!",
        "differs from the one written",
    ),
    (
        "no memory",
        emulator.FAILURES,
        "Loading section .text, size 0x1 lma 0x90000000\nLoad failed",
        "has no memory at",
    ),
)


def job(firmware: FirmwareFile | None = None, **options: object) -> FlashJob:
    flash = Flash("openocd", **options)  # type: ignore[arg-type]
    return FlashJob(firmware or firmware_of(Path("none")), BOARD, flash, "wing")


def firmware_of(path: Path) -> FirmwareFile:
    return FirmwareFile(path, "0" * 40, (), 0, ())


@pytest.mark.parametrize(
    ("failures", "said", "sentence"),
    [pytest.param(*case[1:], id=f"{n}: {case[0]}") for n, case in enumerate(_CASES)],
)
def test_a_failure_is_told_in_one_sentence(
    failures: tuple[Failure, ...], said: str, sentence: str
) -> None:
    error = explained(job(), "it", said, failures)
    assert sentence in error.message
    assert "wing" in error.message or BOARD.name in error.message
    assert error.hint
    assert said.splitlines()[-1] in error.details


def test_what_nobody_has_seen_yet_is_shown_as_it_came() -> None:
    error = explained(job(), "OpenOCD", "a\nstrange thing", OPENOCD.failures)
    assert error.message == "OpenOCD could not write the firmware to wing"
    assert error.details == ("a", "strange thing")


class _Pieces(FirmwareFile):
    """A firmware that lies in pieces, without an ELF file."""

    def contents(self):  # type: ignore[no-untyped-def]
        return iter([(0x0800_0110, b"\x02" * 5), (0x0800_0004, b"\x01" * 4)])


PIECES = _Pieces(Path("none"), "0" * 40, (), 0, ())


def test_one_image_fills_gaps_as_erased_flash_is() -> None:
    start, data = one_image(PIECES)
    assert start == 0x0800_0004
    assert data == b"\x01" * 4 + b"\xff" * (0x10C - 4) + b"\x02" * 5


def test_pieces_in_several_memories_are_refused() -> None:
    class _Far(FirmwareFile):
        def contents(self):  # type: ignore[no-untyped-def]
            return iter([(0, b"\x01"), (0x2000_0000, b"\x02")])

    with pytest.raises(BundleError, match="several memories"):
        one_image(_Far(Path("none"), "0" * 40, (), 0, ()))


def test_uf2_blocks_are_those_of_the_format() -> None:
    blocks = uf2_blocks(PIECES, 0x57755A57)
    assert len(blocks) == 2 * 512
    image = {}
    for number in range(2):
        block = blocks[512 * number : 512 * (number + 1)]
        first, second, flags, address, size, index, count, family = struct.unpack_from("<8I", block)
        assert (first, second, flags) == (0x0A324655, 0x9E5D5157, 0x2000)
        assert (size, index, count, family) == (256, number, 2, 0x57755A57)
        assert struct.unpack_from("<I", block, 508) == (0x0AB16F30,)
        assert address % 256 == 0
        image[address] = block[32 : 32 + size]
    whole = image[0x0800_0000] + image[0x0800_0100]
    assert whole[4:8] == b"\x01" * 4
    assert whole[0x110:0x115] == b"\x02" * 5
    assert set(whole[:4] + whole[8:0x110] + whole[0x115:]) == {0xFF}


def test_uf2_is_copied_to_the_disk_of_that_label(tmp_path: Path) -> None:
    disk = tmp_path / "FEATHER"
    disk.mkdir()
    wanted = job(PIECES, target="FEATHER", family_id=1)
    with pytest.raises(DeviceError, match="no USB disk FEATHER is mounted"):
        uf2.write(wanted, (tmp_path,))
    (disk / "INFO_UF2.TXT").write_text("UF2 Bootloader")
    uf2.write(wanted, (tmp_path / "other", tmp_path))
    assert (disk / "firmware.uf2").read_bytes() == uf2_blocks(PIECES, 1)
