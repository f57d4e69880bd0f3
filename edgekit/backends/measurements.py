"""What regions took on real boards, kept for later builds.

One JSON file in the user's data folder. A record is found by region, board and the library's
version; the region's name stands for all that it computes, weights and options included. Whoever
moves this into a database keeps `Measured` and the two functions.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from edgekit.backends.cost import Verdict
from edgekit.errors import StorageError
from edgekit.files import storage_errors, write_atomically
from edgekit.paths import data_dir
from edgekit.wording import duration

_FORMAT = 1
_LARGEST_FILE = 64 << 20
_WORTH_IT = 0.98
"""Of TVM's time: what is nearer is noise, and one call more."""


@dataclass(frozen=True)
class Measured:
    """One region both ways on one kind of board: medians of one inference."""

    region: str
    board: str
    backend: str
    version: str
    """Of the library."""
    library_us: float
    tvm_us: float
    agrees: bool
    """Whether both ways gave the same numbers."""
    device: str
    when: str
    """ISO 8601, UTC."""

    @property
    def verdict(self) -> Verdict:
        saved = self.tvm_us - self.library_us
        if not self.agrees:
            return Verdict(
                False, f"measured on {self.device}: its numbers differ from TVM's", saved
            )
        library, tvm = duration(self.library_us / 1e6), duration(self.tvm_us / 1e6)
        times = f"{library}, in TVM {tvm}"
        pays = self.library_us < _WORTH_IT * self.tvm_us
        return Verdict(pays, f"measured on {self.device}: {times}", saved)


def measurements_file() -> Path:
    return data_dir() / "regions.json"


def read_measurements(board: str, versions: Mapping[str, str]) -> dict[str, Measured]:
    """By region, those of a board for the versions that backends have now."""
    return {
        record.region: record
        for record in _read(measurements_file())
        if record.board == board and versions.get(record.backend) == record.version
    }


def keep_measurement(record: Measured) -> None:
    """Add one, in the place of an older one of the same region, board and version."""
    path = measurements_file()
    with storage_errors("keep a measurement", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            others = [old for old in _read(path) if _key(old) != _key(record)]
            document = {"format": _FORMAT, "regions": [asdict(r) for r in (*others, record)]}
            write_atomically(path, json.dumps(document, indent=1) + "\n")


def _key(record: Measured) -> tuple[str, str, str]:
    return (record.region, record.board, record.version)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> list[Measured]:
    if not path.exists():
        return []
    with storage_errors("read the measurements", path):
        if path.stat().st_size > _LARGEST_FILE:
            raise _damaged(path, "it is larger than any that was written")
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise _damaged(path, "another edgekit wrote it")
        return [_record(item) for item in document["regions"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, "it is no file of measurements") from error


def _record(item: Mapping[str, object]) -> Measured:
    """TypeError for anything but what `keep_measurement` writes."""
    kinds = {"library_us": float, "tvm_us": float, "agrees": bool}
    names = [field.name for field in fields(Measured)]
    if sorted(item) != sorted(names):
        raise TypeError("other keys")
    for name in names:
        if not isinstance(item[name], kinds.get(name, str)):
            raise TypeError(name)
    return Measured(**item)  # type: ignore[arg-type]


def _damaged(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} can't be used: {why}",
        hint="move it away; edgekit partition --measure measures again",
    )
