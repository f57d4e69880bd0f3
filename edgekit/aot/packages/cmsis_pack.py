"""VENDOR.NAME.VERSION.pack: a model as a software component for CMSIS tools (Open-CMSIS-Pack)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from edgekit.aot.packages.compiled import CompiledTree, copy_into
from edgekit.aot.packages.formats import PACKAGE_VERSION
from edgekit.aot.write_project import HOST_FOLDER
from edgekit.base.quoting import one_line
from edgekit.bundle.archive import write_zip

VENDOR = "edgekit"
_SCHEMA_VERSION = "1.7.36"
_COMPILERS: tuple[dict[str, str], ...] = (
    {"Tcompiler": "GCC"},
    {"Tcompiler": "ARMCC", "Toptions": "AC6"},
    {"Tcompiler": "CLANG"},
)
_CONDITION = "where it runs"
_LONGEST_SUB = 32
_LONGEST_MODEL = 60


def pack_name(name: str) -> str:
    """Return the file name that the standard requires; tools check it."""
    return f"{VENDOR}.{name}.{PACKAGE_VERSION}.pack"


def write_cmsis_pack(compiled: CompiledTree, folder: Path, scratch: Path) -> tuple[str, ...]:
    files = _contents(compiled)
    inside = scratch / "pack"
    for path in files:
        copy_into(compiled.tree.folder / path, inside / path)
    description = f"{VENDOR}.{compiled.name}.pdsc"
    (inside / description).write_bytes(_description(compiled))
    made = pack_name(compiled.name)
    write_zip(inside, (description, *files), folder / made)
    return (made,)


def _contents(compiled: CompiledTree) -> tuple[str, ...]:
    """Return the files to package: sources, and the documents on their use and terms."""
    return compiled.files(
        lambda path: not path.startswith("test/") and path not in ("Makefile", "CMakeLists.txt")
    )


def _description(compiled: CompiledTree) -> bytes:
    name, origin = compiled.name, compiled.tree.origin
    model, cpu = one_line(origin.model)[:_LONGEST_MODEL], one_line(origin.cpu)
    package = ElementTree.Element(
        "package",
        {
            "schemaVersion": _SCHEMA_VERSION,
            "xmlns:xs": "http://www.w3.org/2001/XMLSchema-instance",
            "xs:noNamespaceSchemaLocation": "PACK.xsd",
        },
    )
    _add(package, "vendor", VENDOR)
    _add(package, "name", name)
    _add(
        package,
        "description",
        f"The model {model} as C for {cpu}, made by edgekit",
    )
    # The standard requires the URL of newer versions: this one has none.
    _add(package, "url", "")
    if compiled.licenses:
        sets = _add(package, "licenseSets")
        group = _add(sets, "licenseSet", id="libraries", default="true", gating="false")
        spdx = {library.name: library.license for library in compiled.report.libraries}
        for path in compiled.licenses:
            library = Path(path).stem
            _add(group, "license", name=path, title=library, spdx=spdx[library])
    releases = _add(package, "releases")
    _add(
        releases,
        "release",
        f"Model of SHA-256 {compiled.model_sha256}, edgekit {origin.edgekit}",
        version=PACKAGE_VERSION,
    )
    keywords = _add(package, "keywords")
    for keyword in ("machine learning", name):
        _add(keywords, "keyword", keyword)
    condition = _add(_add(package, "conditions"), "condition", id=_CONDITION)
    for compiler in _COMPILERS:
        _add(condition, "accept", **compiler)
    if (compiled.tree.folder / HOST_FOLDER).is_dir():
        _add(condition, "require", Dcore=_core(compiled.board.target.cpu))
    component = _add(
        _add(package, "components"),
        "component",
        Cclass="Machine Learning",
        Cgroup=VENDOR,
        Csub=name[:_LONGEST_SUB],
        Cversion=PACKAGE_VERSION,
        condition=_CONDITION,
    )
    _add(component, "description", f"{model}: {name}_run() and an arena for it")
    files = _add(component, "files")
    for category, path in _component_files(compiled):
        _add(files, "file", category=category, name=path)
    ElementTree.indent(package)
    text: bytes = ElementTree.tostring(package, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _component_files(compiled: CompiledTree) -> Iterator[tuple[str, str]]:
    name = compiled.name
    yield "doc", "README.md"
    yield "header", f"{name}.h"
    yield "other", f"{name}_weights.h"
    for source in compiled.tree.sources:
        yield "source", source
    for include in compiled.tree.includes:
        if include != ".":
            yield "include", f"{include}/"


def _core(llvm_cpu: str) -> str:
    """Return the standard's name of a core, such as cortex-m55."""
    word = llvm_cpu.removeprefix("cortex-").upper().replace("PLUS", "+")
    return f"Cortex-{word}"


def _add(
    parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str
) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, tag, attributes)
    element.text = text
    return element
