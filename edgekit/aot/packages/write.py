"""Write the requested package into the bundle's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from edgekit.aot.packages.arduino import write_arduino_library
from edgekit.aot.packages.cmsis_pack import write_cmsis_pack
from edgekit.aot.packages.compiled import CompiledTree
from edgekit.aot.packages.energyrunner import write_energyrunner
from edgekit.aot.packages.formats import CodeFormat
from edgekit.aot.packages.projects import writer_of
from edgekit.aot.packages.static_library import write_static_library
from edgekit.base.files import storage_errors

_WRITERS: Mapping[CodeFormat, Callable[[CompiledTree, Path, Path], tuple[str, ...]]] = {
    "static-lib": write_static_library,
    "cmsis-pack": write_cmsis_pack,
    "arduino": write_arduino_library,
    "platformio": writer_of("platformio"),
    "esp-idf": writer_of("esp-idf"),
    "zephyr": writer_of("zephyr"),
    "rust": writer_of("rust"),
    "energyrunner": write_energyrunner,
}


def write_package(
    code_format: CodeFormat, compiled: CompiledTree, folder: Path, scratch: Path
) -> tuple[str, ...]:
    """Write the package and return the paths of its files; none for plain C."""
    writer = _WRITERS.get(code_format)
    if writer is None:
        return ()
    with storage_errors("write the package", folder):
        return writer(compiled, folder, scratch)
