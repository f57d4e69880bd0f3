"""Write a C tree's files: all but the reference vectors, which a reference runtime computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.aot.tree import Origin, TreePlan
from edgekit.aot.write_header import header_text
from edgekit.aot.write_project import HOST_FOLDER, cmake_text, makefile_text, readme_text
from edgekit.aot.write_source import source_text, weights_text
from edgekit.aot.write_test import test_text, vectors_text
from edgekit.base.files import safe_join, storage_errors

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.tensors import TensorSpec
    from edgekit.models.comparison import Leeway


def tree_files(plan: TreePlan) -> dict[str, str]:
    """Return the text of each file by path."""
    name = plan.name
    files = {
        **_code(plan),
        "CMakeLists.txt": cmake_text(plan),
        "Makefile": makefile_text(plan),
        "README.md": readme_text(plan),
        f"test/test_{name}.c": test_text(plan),
    }
    if plan.host is not None:
        for path, text in _code(plan.host).items():
            files[f"{HOST_FOLDER}/{path}"] = text
    for library in plan.libraries:
        files[f"LICENSES/{library.name}.txt"] = library.license_text
        for path, text in library.files.items():
            files[f"lib/{library.name}/{path}"] = text
    return files


def _code(plan: TreePlan) -> dict[str, str]:
    name = plan.name
    return {
        f"{name}.h": header_text(plan),
        f"{name}.c": source_text(plan),
        f"{name}_weights.h": weights_text(plan),
    }


def write_tree(plan: TreePlan, folder: Path) -> tuple[str, ...]:
    """Write the files; return their paths in order."""
    files = tree_files(plan)
    _write(folder, files)
    return tuple(sorted(files))


def write_vectors(
    folder: Path,
    origin: Origin,
    ends: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    leeways: Mapping[str, Leeway] | None = None,
) -> None:
    """Write the reference vectors of the tree's own test; `ends` are inputs and outputs."""
    text = vectors_text(origin, ends, inputs, outputs, leeways or {})
    _write(folder, {"test/vectors.h": text})


def _write(folder: Path, files: Mapping[str, str]) -> None:
    with storage_errors("write the C of the model", folder):
        for path, text in files.items():
            file = safe_join(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
