"""Writes what calls the model from Python, Rust and Go. C has edgekit.h, and C++ edgekit.hpp."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edgekit.agent.build import INTERFACE
from edgekit.bundle.folder import Bundle, write_tensor
from edgekit.verbs.export.template import TEMPLATE, filled, program_name
from edgekit.version import __version__

_LANGUAGES = ("python", "rust", "go")
_MACHINES = {"arm": "armv7l"}
"""Linux' names of machines, where they are others than edgekit's."""


def module_name(program: str) -> str:
    """Return the name of the program's Python module."""
    return program.replace("-", "_")


def write_wrappers(folder: Path, bundle: Bundle, arch: str) -> Mapping[str, int]:
    """Write a folder for each language, and return the bytes of its source."""
    manifest = bundle.manifest
    program = program_name(manifest.model.name)
    specs = [entry.spec for entry in manifest.inputs]
    state = {spec.name: spec.state for spec in specs if spec.state is not None}
    values = {
        "program": program,
        "module": module_name(program),
        "board": manifest.board.name,
        "machine": _MACHINES.get(arch, arch),
        "state": repr(state),
        "interface": _defined("EDGEKIT_INTERFACE"),
        "alignment": _defined("EDGEKIT_ALIGNMENT"),
        "version": __version__,
    }
    for language in _LANGUAGES:
        for file in sorted((TEMPLATE / language).rglob("*.*")):
            name = file.relative_to(TEMPLATE).as_posix()
            made = folder / name.removesuffix(".in")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(filled(name, values), encoding="utf-8")
    first = bundle.reference_inputs() if state else {}
    for place, name in enumerate(state):
        write_tensor(folder / "python" / f"state-{place}.npy", first[name])
    sizes = {language: _size(folder / language) for language in _LANGUAGES}
    source = folder / "src"
    own = {"C": _size(source / INTERFACE.name), "C++": _size(source / "edgekit.hpp")}
    return {**own, **{name.capitalize(): size for name, size in sizes.items()}}


def _defined(name: str) -> str:
    """Return the value of a constant in edgekit.h."""
    found = re.search(
        rf"^#define {name} (\d+)$", INTERFACE.read_text(encoding="ascii"), re.MULTILINE
    )
    assert found is not None
    return found[1]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())
