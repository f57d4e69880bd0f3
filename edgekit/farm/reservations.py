"""The file with a farm's reservations, which outlive its keeper."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.base.decode import DecodeError, decode_json
from edgekit.base.errors import StorageError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.devices.keeper_client import farm_folder
from edgekit.farm.status import Reservation


@dataclass(frozen=True)
class _File:
    reservations: Mapping[str, Reservation]


def reservations_file() -> Path:
    return farm_folder() / "reservations.json"


def read_reservations(now: float) -> dict[str, Reservation]:
    """Return the reservations by device that are not over; StorageError if the file is damaged."""
    path = reservations_file()
    with storage_errors("read the reservations", path):
        if not path.exists():
            return {}
        text = path.read_text(errors="replace")
    try:
        found = decode_json(_File, text)
    except (DecodeError, ValueError) as error:
        raise StorageError(
            f"the reservations in {path} are damaged: {error}",
            hint="reserve the devices again",
        ) from error
    return {name: kept for name, kept in found.reservations.items() if kept.until > now}


def write_reservations(reservations: Mapping[str, Reservation]) -> None:
    path = reservations_file()
    document = {"reservations": {name: asdict(kept) for name, kept in reservations.items()}}
    with storage_errors("write the reservations", path):
        write_atomically(path, json.dumps(document))
