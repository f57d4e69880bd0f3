"""The record that a deployment leaves on a device, one for each version of a model.

Records are not trusted: any user who can write on the device may have written them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.base.errors import UsageError
from edgekit.base.json_reader import read_json
from edgekit.base.options import option
from edgekit.base.wording import counted, did_you_mean
from edgekit.devices.linux.device_log import (
    checked_digest,
    checked_seconds,
    checked_time,
    clean,
    device_time,
    now,
)
from edgekit.version import __version__

LARGEST_RECORD = 8192
SHOWN_DIGEST = 12
"""Characters of a digest that are shown, and that a user may type."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_SCHEMA = 1
_MOST_FILES = 16


@dataclass(frozen=True)
class ModelInput:
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelFile:
    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class VersionRecord:
    """A deployment's record on the device."""

    model: str
    digest: str
    """Digest of the bundle."""
    files: tuple[ModelFile, ...]
    deployed: str | None = field(default_factory=now)
    """Time in UTC, by the clock of the machine that deployed."""
    edgekit: str = __version__
    board: str
    verified: bool
    median: float | None
    """Seconds of one inference; None if it was not measured."""
    inputs: tuple[ModelInput, ...]


@dataclass(frozen=True)
class Version:
    record: VersionRecord
    number: int
    """Number of this deployment of the model to the device."""
    before: str | None
    """Digest of the version that was current before."""
    clock: str | None
    """Time in UTC, by the device's own clock."""
    current: bool
    there: bool
    """False if its files are gone."""


def folder_of(model: str) -> str:
    """Return the name of a model's folder on a device: the model's own if that is a plain word."""
    if _SAFE_NAME.fullmatch(model):
        return model
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip(".-")[:48] or "model"
    return f"{plain}-{hashlib.sha256(model.encode(errors='replace')).hexdigest()[:8]}"


def record_text(record: VersionRecord) -> str:
    """Return the record as one line."""
    inputs = [[entry.dtype, *entry.shape] for entry in record.inputs]
    files = {file.name: file.sha256 for file in record.files}
    text = {"schema": _SCHEMA, **vars(record), "files": files, "inputs": inputs}
    line = json.dumps(text)
    return line if len(line) < LARGEST_RECORD else json.dumps({**text, "inputs": []})


def parse_versions(text: str) -> tuple[Version, ...]:
    """Read the device's answer. Invalid parts are skipped: it may hold anything."""
    found: dict[str, list[Version]] = {}
    current, folder = None, ""
    lines = iter(text.splitlines())
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "model":
            digest, _, folder = rest.partition(" ")
            current = checked_digest(digest)
        elif word == "version":
            state, _, digest = rest.partition(" ")
            stamp, record = next(lines, "").split(), parse_record(next(lines, ""))
            if record is None or (record.digest, folder_of(record.model)) != (digest, folder):
                continue
            found.setdefault(record.model, []).append(
                Version(
                    record=record,
                    number=int(stamp[0]) if stamp and _is_number(stamp[0]) else 0,
                    before=checked_digest(stamp[1]) if len(stamp) > 1 else None,
                    clock=device_time(int(stamp[2]))
                    if len(stamp) > 2 and _is_number(stamp[2])
                    else None,
                    current=digest == current,
                    there=state == "there",
                )
            )
    return tuple(
        version
        for _, versions in sorted(found.items())
        for version in sorted(versions, key=lambda version: -version.number)
    )


def parse_record(line: str) -> VersionRecord | None:
    """Read an untrusted record; None if it is invalid."""
    if len(line) > LARGEST_RECORD:
        return None
    try:
        said = read_json(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("schema") != _SCHEMA:
        return None
    digest, files = checked_digest(said.get("digest")), _files(said)
    words = [said.get(key) for key in ("model", "edgekit", "board")]
    if digest is None or not files or not all(isinstance(word, str) for word in words):
        return None
    model, edgekit, board = (clean(str(word)) for word in words)
    return VersionRecord(
        model=model,
        digest=digest,
        files=files,
        deployed=checked_time(said.get("deployed")),
        edgekit=edgekit,
        board=board,
        verified=said.get("verified") is True,
        median=checked_seconds(said.get("median")),
        inputs=_inputs(said),
    )


def choose_model(versions: Sequence[Version], name: str | None, device: str) -> str:
    """Return the model that is named, or the only one."""
    names = sorted({version.record.model for version in versions})
    if not names:
        raise UsageError(
            f"nothing was deployed to {device}", hint=f"edgekit deploy MODEL --device {device}"
        )
    if name is not None and name not in names:
        raise UsageError(
            f"no model {name!r} was deployed to {device}",
            hint=did_you_mean(name, names, f"there are {', '.join(names)[:200]}"),
        )
    if name is None and len(names) > 1:
        raise UsageError(
            f"there are several models on {device}: {', '.join(names)[:200]}",
            hint="name one of them",
        )
    return name or names[0]


def choose_version(versions: Sequence[Version], model: str, to: str | None, device: str) -> Version:
    """Return the version to roll back to: the previous one, or the one whose digest begins with
    `to`."""
    own = [version for version in versions if version.record.model == model]
    current = next((version for version in own if version.current), None)
    if to is not None:
        fitting = [version for version in own if version.record.digest.startswith(to.lower())]
        if len(fitting) != 1:
            count = counted(len(fitting), "version") if fitting else "no version"
            raise UsageError(
                f"there is {count} {to} of {model} on {device}".replace("is 2", "are 2"),
                hint=f"there are {_listed(own)}",
            )
        chosen = fitting[0]
    else:
        before = current.before if current is not None else None
        found = [version for version in own if version.record.digest == before]
        if not found:
            others = [version for version in own if version is not current]
            raise UsageError(
                f"there is no version of {model} before the current one on {device}",
                hint=f"name one with {option('to')}: there are {_listed(others)}"
                if others
                else "every deployment of another build makes one",
            )
        chosen = found[0]
    if chosen is current:
        raise UsageError(
            f"{chosen.record.digest[:SHOWN_DIGEST]} is the current version of {model} on {device}",
            hint=f"name another one: there are {_listed(own)}",
        )
    return chosen


def _listed(versions: Sequence[Version]) -> str:
    return ", ".join(version.record.digest[:SHOWN_DIGEST] for version in versions[:8])


def _files(said: Mapping[str, object]) -> tuple[ModelFile, ...]:
    """Read the files; empty if any entry is invalid."""
    given = said.get("files")
    if not isinstance(given, dict) or len(given) > _MOST_FILES:
        return ()
    found = []
    for name, value in given.items():
        sha256 = checked_digest(value)
        if sha256 is None or not _SAFE_NAME.fullmatch(name):
            return ()
        found.append(ModelFile(name, sha256))
    return tuple(found)


def _inputs(said: Mapping[str, object]) -> tuple[ModelInput, ...]:
    """Read the inputs; empty if any entry is invalid."""
    found = []
    given = said.get("inputs")
    for entry in given if isinstance(given, list) else ():
        if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
            return ()
        dtype, *shape = entry
        if not re.fullmatch("[a-z0-9_]{1,20}", dtype) or len(shape) > 16:
            return ()
        if not all(type(extent) is int and 0 <= extent < 2**40 for extent in shape):
            return ()
        found.append(ModelInput(dtype, tuple(shape)))
    return tuple(found)


def _is_number(word: str) -> bool:
    return re.fullmatch("[0-9]{1,12}", word) is not None
