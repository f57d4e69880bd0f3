"""Checks whether the user agreed to what a project's files make edgekit run or send.

A stranger may have written a project. The user agrees once to each file that names a program, a
flag, a host or a URL. A hash of exactly these keys and values is recorded: only a change of one of
them asks again. docs/security.md lists the keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from edgekit.base.consent import Effect, TrustedFile, is_agreed_to
from edgekit.base.database_url import without_secrets
from edgekit.base.decode import decode_json
from edgekit.base.errors import UntrustedProjectError
from edgekit.base.files import exclusive_lock, replace_file, storage_errors
from edgekit.base.options import option
from edgekit.base.own_backends import own_backends
from edgekit.base.paths import data_dir, nearest_project_file, own_profile_folders, place_of
from edgekit.base.toml_source import TomlError, read_toml

FileKind = Literal["project", "boards", "toolchains"]
TRUSTED_FOLDERS = "EDGEKIT_TRUSTED_PATH"
"""The variable that lists folders whose projects are their user's own."""

_HARMLESS: Mapping[FileKind, tuple[str, ...]] = {
    "project": (
        *("schema", "model", "board", "keep", "shapes", "constants"),
        *("preprocess", "postprocess", "ends", "reshape", "state"),
        *("offload.backends", "offload.force", "offload.never", "offload.cost"),
    ),
    "boards": (
        *("schema", "name", "title", "kind", "vendor_url", "toolchain", "target", "gpu"),
        *("cpu.name", "cpu.arch", "cpu.features", "cpu.cores", "memory", "transport", "firmware"),
        *("offload.allowed", "offload.default", "offload.cost"),
    ),
    "toolchains": ("schema", "name", "title", "triple", "minimum_version", "openmp"),
}
"""Keys that make edgekit run nothing and send nothing. Every other key needs trust."""
_MEANINGS: Mapping[FileKind, tuple[tuple[str, str], ...]] = {
    "project": (
        (
            "devices.*.power",
            "this switches the device's power; what follows sh: is run",
        ),
        ("devices", "edgekit connects to this device and sends models to it"),
        ("store", "measurements are sent to this store, and read from it"),
        ("offload", "an option of a library that runs parts of models"),
    ),
    "boards": (
        ("cpu.compile_flags", "the compiler is given these flags"),
        ("flash", "a program that writes firmware is told this"),
        ("twin", "this emulator is started"),
        ("offload", "an option of a library that runs parts of models"),
    ),
    "toolchains": (
        ("tools", "this program is run"),
        ("install", "edgekit tells its user to install this"),
        ("sysroot", "headers and libraries in this folder are compiled in"),
        ("link_flags", "the linker is given these flags"),
        ("", "the compiler is given these flags"),
    ),
}
"""Descriptions of keys by their beginning; the first that matches counts."""
_CPU_FLAG = re.compile(r"-m((cpu|arch|tune|fpu|float-abi|abi)=[A-Za-z0-9.+_-]+|thumb|arm)")
"""A flag that only chooses instructions."""
_STORE = "store.url"
_SCHEMA_VERSION = 1


def effects_of(kind: FileKind, table: Mapping[str, object]) -> tuple[Effect, ...]:
    """List what a file makes edgekit run or send: every key that is not known to be harmless."""
    return tuple(
        Effect(
            key,
            json.dumps(_shown(key, value), ensure_ascii=False, default=str),
            _meaning(kind, key),
        )
        for key, value in _leaves(table)
        if not _is_harmless(kind, key, value)
    )


def require_trust(path: Path, effects: Sequence[Effect], folder: Path | None = None) -> None:
    """Raise UntrustedProjectError unless the user agreed, or agrees when asked now.

    `folder` is the project's. The other files in it are asked about at the same time. A model that
    runs code stands for itself.
    """
    if not effects or is_trusted(path, effects):
        return
    place = place_of(path)
    others = [file for file in project_files(folder) if file.path != place] if folder else []
    files = [TrustedFile(place, tuple(effects), False)]
    files += [file for file in others if file.effects and not file.trusted]
    if is_agreed_to(files):
        trust(files)
        return
    quoted = shlex.quote(str(folder or path))
    raise UntrustedProjectError(
        f"{path} is not trusted yet, and could make edgekit run programs or send data",
        hint=f"`edgekit trust {quoted}` trusts {'the project' if folder else 'this file'} as it "
        f"is; {option('show')} lists all that it does",
        details=tuple(f"{effect}" for effect in effects),
    )


def is_trusted(path: Path, effects: Sequence[Effect]) -> bool:
    """Return whether the user agreed to these effects of this file, or owns all projects around it.

    A link is the user's own if both the link and its target are.
    """
    place = place_of(path)
    listed = os.environ.get(TRUSTED_FOLDERS, "").split(os.pathsep)
    own = [Path(entry).resolve() for entry in listed if Path(entry).is_absolute()]
    if all(any(one.is_relative_to(folder) for folder in own) for one in (place, path.resolve())):
        return True
    return _recorded().get(str(place)) == _digest(effects)


def trust(files: Sequence[TrustedFile]) -> None:
    """Remember that the user agrees to what these files do now."""
    agreed = {str(file.path): _digest(file.effects) for file in files if file.effects}
    if agreed:
        _change(lambda recorded: {**recorded, **agreed})


def trust_effects(path: Path, effects: Sequence[Effect]) -> None:
    """Remember that the user agrees to these effects of a file."""
    trust([TrustedFile(place_of(path), tuple(effects), True)])


def revoke(files: Sequence[TrustedFile]) -> None:
    """Forget that the user agreed."""
    gone = {str(file.path) for file in files}
    _change(lambda recorded: {p: d for p, d in recorded.items() if p not in gone})


def project_files(folder: Path) -> tuple[TrustedFile, ...]:
    """List the files of a project that edgekit reads if `folder` is the current one.

    A file that is not TOML has no effects: it can't be used.
    """
    found: list[tuple[FileKind, Path]] = []
    project = nearest_project_file(folder)
    if project is not None:
        found.append(("project", project))
    for kind in ("boards", "toolchains"):
        place = folder / kind
        if not is_own_folder(kind, place):
            found += [(kind, path) for path in sorted(place.glob("*.toml"))]
    files = []
    for kind, path in found:
        try:
            effects = effects_of(kind, read_toml(path).table)
        except (OSError, TomlError):
            effects = ()
        files.append(TrustedFile(place_of(path), effects, is_trusted(path, effects)))
    return tuple(files)


def is_own_folder(kind: Literal["boards", "toolchains"], folder: Path) -> bool:
    """Return whether the profiles in a folder are the user's own or edgekit's, not a project's."""
    return folder.resolve() in {own.resolve() for own in own_profile_folders(kind)}


def _leaves(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Return each value of a table with its dotted key; lists are values."""
    for name, value in sorted(table.items()):
        plain = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{plain}.")
        else:
            yield f"{before}{plain}", value


def _is_harmless(kind: FileKind, key: str, value: object) -> bool:
    if kind == "boards" and key == "cpu.compile_flags" and isinstance(value, list):
        return all(isinstance(flag, str) and _CPU_FLAG.fullmatch(flag) for flag in value)
    return any(_begins(key, start) for start in _HARMLESS[kind])


def _shown(key: str, value: object) -> object:
    """Hide the password of a store's URL.

    A file with a password is refused, so its changes do not count. Any other value is shown whole
    and counts whole, even one that looks like a URL.
    """
    return without_secrets(value) if key == _STORE and isinstance(value, str) else value


def _meaning(kind: FileKind, key: str) -> str:
    libraries = {facts.project_table for facts in own_backends().values()} - {""}
    if kind == "project" and any(_begins(key, table) for table in libraries):
        return "C in this folder is compiled into models"
    for start, meaning in _MEANINGS[kind]:
        if _begins(key, start) or fnmatchcase(key, start):
            return meaning
    return "edgekit does not know this key"


def _begins(key: str, start: str) -> bool:
    return not start or key == start or key.startswith(f"{start}.")


def _digest(effects: Sequence[Effect]) -> str:
    text = json.dumps([[effect.key, effect.value] for effect in effects])
    return hashlib.sha256(text.encode()).hexdigest()


def _file() -> Path:
    return data_dir() / "trusted.json"


@dataclass(frozen=True)
class _Record:
    """The file of what the user agreed to."""

    files: Mapping[str, str]


def _recorded() -> dict[str, str]:
    """Read the recorded digests by path; empty if the record is damaged."""
    try:
        return dict(decode_json(_Record, _file().read_bytes(), ignore_unknown=True).files)
    except (OSError, ValueError):
        return {}


def _change(changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
    file = _file()
    with storage_errors("remember what is trusted", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(file.with_suffix(".lock")), replace_file(file) as stream:
            os.fchmod(stream.fileno(), 0o600)
            files = dict(sorted(changed(_recorded()).items()))
            document = {"schema": _SCHEMA_VERSION, "files": files}
            stream.write(json.dumps(document, indent=2).encode() + b"\n")
