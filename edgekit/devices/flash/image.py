"""A firmware without its ELF headers, for tools that take bytes at addresses."""

from __future__ import annotations

import struct

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.errors import BundleError

_MOST_BYTES = 64 << 20
_FLASH_ERASED = b"\xff"
_UF2_BLOCK = struct.Struct("<8I")
_UF2_FIRST, _UF2_SECOND, _UF2_LAST = 0x0A324655, 0x9E5D5157, 0x0AB16F30
_UF2_HAS_FAMILY = 0x2000
_UF2_PAYLOAD = 256
_UF2_DATA_BYTES = 476


def one_image(firmware: FirmwareFile) -> tuple[int, bytes]:
    """Return the start address and all bytes from it on; gaps hold erased flash."""
    pieces = sorted(firmware.contents())
    start = pieces[0][0]
    end = max(address + len(data) for address, data in pieces)
    if end - start > _MOST_BYTES:
        raise BundleError(
            f"{firmware.path} lies in several memories, which this flash driver can't write",
            hint="use a debug probe: [flash] in the board's profile",
        )
    image = bytearray(_FLASH_ERASED * (end - start))
    for address, data in pieces:
        image[address - start : address - start + len(data)] = data
    return start, bytes(image)


def uf2_blocks(firmware: FirmwareFile, family_id: int) -> bytes:
    """Return the blocks of 512 bytes, in any order, that boot loaders with a USB disk take."""
    start, image = one_image(firmware)
    offset = start % _UF2_PAYLOAD
    start, image = start - offset, _FLASH_ERASED * offset + image
    pieces = [image[at : at + _UF2_PAYLOAD] for at in range(0, len(image), _UF2_PAYLOAD)]
    blocks = []
    for number, piece in enumerate(pieces):
        header = _UF2_BLOCK.pack(
            _UF2_FIRST,
            _UF2_SECOND,
            _UF2_HAS_FAMILY,
            start + number * _UF2_PAYLOAD,
            _UF2_PAYLOAD,
            number,
            len(pieces),
            family_id,
        )
        padded = piece.ljust(_UF2_PAYLOAD, _FLASH_ERASED).ljust(_UF2_DATA_BYTES, b"\0")
        blocks.append(header + padded + struct.pack("<I", _UF2_LAST))
    return b"".join(blocks)
