"""FORMAT/NAME.zip: a model in C as a part of a project: for Zephyr, PlatformIO, ESP-IDF, Rust.

Each is a folder of `templates/`, whose gaps look like {{name}}, and the sources in `src/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.packages.arduino import is_source, place
from edgekit.aot.packages.compiled import CompiledTree, copy_into, write_text
from edgekit.aot.packages.formats import PACKAGE_VERSION
from edgekit.base.quoting import one_line
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.archive import write_zip

Project = Literal["platformio", "esp-idf", "zephyr", "rust"]
_TEMPLATES = Path(__file__).parent / "templates"
_GAP = re.compile(r"\{\{([a-z_0-9]+)\}\}")
_REFERENCE: Mapping[Project, str] = {
    "platformio": "examples/reference/src",
    "esp-idf": "examples/reference/main",
    "zephyr": "samples/reference/src",
    "rust": "tests",
}
"""The folder of the program that compares the outputs of the reference inputs."""
_RUST = {"float": "f32", "double": "f64", "bool": "bool"}


def writer_of(project: Project) -> partial[tuple[str, ...]]:
    """Return the function that writes such a part."""
    return partial(_write, project)


def _write(
    project: Project, compiled: CompiledTree, folder: Path, scratch: Path
) -> tuple[str, ...]:
    inside, name, tree = scratch / project, compiled.name, compiled.tree
    root = inside / name
    sources = []
    for path in compiled.files(is_source):
        placed = f"src/{place(path, tree.includes)}"
        copy_into(tree.folder / path, root / placed)
        sources += [placed] if placed.endswith(".c") else []
    for path in ("README.md", *compiled.licenses):
        copy_into(tree.folder / path, root / path)
    reference = root / _REFERENCE[project]
    copy_into(tree.folder / "test" / f"test_{name}.c", reference / "reference.c")
    copy_into(tree.folder / "test" / "vectors.h", reference / "vectors.h")
    values = _values(compiled, sources)
    templates = _TEMPLATES / project
    for template in sorted(path for path in templates.rglob("*") if path.is_file()):
        text = _GAP.sub(lambda gap: values[gap[1]], template.read_text(encoding="utf-8"))
        write_text(root / template.relative_to(templates), text)
    paths = sorted(path for path in inside.rglob("*") if path.is_file())
    made = f"{project}/{name}.zip"
    (folder / project).mkdir()
    write_zip(inside, [path.relative_to(inside).as_posix() for path in paths], folder / made)
    return (made,)


def _values(compiled: CompiledTree, sources: list[str]) -> dict[str, str]:
    name, tree, tools = compiled.name, compiled.tree, compiled.toolchain.tools
    named = [("x", tree.inputs), ("y", tree.outputs)]
    parameters = [
        f"{letter}{k}: &{'mut ' if letter == 'y' else ''}[{_rust(spec)}; {spec.elements}]"
        for letter, specs in named
        for k, spec in enumerate(specs)
    ]
    return {
        "name": name,
        "macros": name.upper(),
        "crate": name,
        "version": PACKAGE_VERSION,
        "cpu": one_line(tree.origin.cpu).replace('"', "'").replace("\\", "/"),
        "sha256": compiled.model_sha256,
        "sources": " ".join(f'"{path}"' for path in sources),
        "listed": ", ".join(f'"{path}"' for path in sources),
        "rooted": " ".join(f"${{root}}/{path}" for path in sources),
        "flags": ", ".join(f'"{flag}"' for flag in compiled.flags),
        "compiler": tools.cc,
        "archiver": tools.ar or "ar",
        "arena": str(max(compiled.report.arena_bytes, 1)),
        "inputs": str(len(tree.inputs)),
        "outputs": str(len(tree.outputs)),
        "parameters": "".join(f", {parameter}" for parameter in parameters),
        "given": ", ".join(f"x{k}.as_ptr().cast()" for k in range(len(tree.inputs))),
        "made": ", ".join(f"y{k}.as_mut_ptr().cast()" for k in range(len(tree.outputs))),
    }


def _rust(spec: TensorSpec) -> str:
    kind = C_TYPES[spec.dtype]
    signed = re.fullmatch(r"(u?)int(\d+)_t", kind)
    return f"{'u' if signed[1] else 'i'}{signed[2]}" if signed else _RUST[kind]
