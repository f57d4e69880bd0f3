"""Which choices were measured to be best, kept for later builds.

One JSON file in the user's data folder. A record is found by kernel, target and the version of the
schedules. Whoever moves this into a database keeps `TunedKernel` and the functions below it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgekit.cpu import Target
from edgekit.errors import StorageError
from edgekit.files import storage_errors, write_atomically
from edgekit.paths import data_dir
from edgekit.schedules.choices import (
    FAMILIES,
    VERSION,
    Choice,
    Choices,
    choice_as_json,
    choice_from_json,
)

_FORMAT = 1
_LARGEST_FILE = 64 << 20


@dataclass(frozen=True)
class TunedKernel:
    """One kernel on one kind of CPU: the best choice, and what the rule's own took beside it."""

    kernel: str
    """Its key: `schedules/kernels.py`."""
    target: str
    """What TVM compiled for, as JSON text."""
    choice: Choice
    """The rule's own where nothing was better: then it needs no measuring again."""
    best_us: float
    own_us: float
    words: str
    """What the kernel computes, for people."""
    device: str
    when: str
    """ISO 8601, UTC."""
    version: int = VERSION

    @property
    def is_own(self) -> bool:
        return self.choice == type(self.choice)()


def tuned_kernels_file() -> Path:
    return data_dir() / "kernels.json"


def tuned_kernels(target: Target) -> dict[str, TunedKernel]:
    """By kernel, those of a target for the schedules as they are now."""
    wanted = target.as_json()
    return {
        record.kernel: record
        for record in _read(tuned_kernels_file())
        if record.target == wanted and record.version == VERSION
    }


def measured_choices(target: Target) -> Choices:
    """What a build should do otherwise than the rules would."""
    found = tuned_kernels(target).values()
    return Choices({r.kernel: r.choice for r in found if not r.is_own})


def keep_tuned_kernel(record: TunedKernel) -> None:
    """Add one, in the place of an older one of the same kernel, target and version."""
    path = tuned_kernels_file()
    with storage_errors("keep a measurement", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            others = [old for old in _read(path) if _key(old) != _key(record)]
            document = {"format": _FORMAT, "kernels": [_written(r) for r in (*others, record)]}
            write_atomically(path, json.dumps(document, indent=1) + "\n")


def _key(record: TunedKernel) -> tuple[str, str, int]:
    return (record.kernel, record.target, record.version)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> list[TunedKernel]:
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
        return [_record(item) for item in document["kernels"] if _is_known(item)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, "it is no file of measurements") from error


def _written(record: TunedKernel) -> dict[str, object]:
    return {**vars(record), "choice": choice_as_json(record.choice)}


def _is_known(item: Mapping[str, object]) -> bool:
    """Not of schedules that are no more: their choices may have had other fields."""
    return item["version"] == VERSION


def _record(item: Mapping[str, object]) -> TunedKernel:
    """ValueError, TypeError or KeyError for anything but what `_written` gives."""
    choice = item["choice"]
    if not isinstance(choice, Mapping) or choice.get("family") not in FAMILIES:
        raise TypeError("choice")
    texts = {name: item[name] for name in ("kernel", "target", "words", "device", "when")}
    times = {name: item[name] for name in ("best_us", "own_us")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("texts")
    if not all(isinstance(time, float) for time in times.values()):
        raise TypeError("times")
    return TunedKernel(choice=choice_from_json(choice), **texts, **times)  # type: ignore[arg-type]


def _damaged(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} can't be used: {why}",
        hint="move it away; edgekit build --quick-tune measures again",
    )
