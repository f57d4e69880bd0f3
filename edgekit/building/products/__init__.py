"""The products of a build. A board's target decides which one it gets."""

from __future__ import annotations

from edgekit.building.product import Product
from edgekit.building.products.library import GpuLibrary, Library, OpenClLibrary
from edgekit.building.products.program_in_c import ProgramInC
from edgekit.building.products.wasm_module import WasmModule
from edgekit.bundle.manifest import Manifest
from edgekit.profiles.board import Board

_LIBRARY, _GPU_LIBRARY, _PROGRAM_IN_C = Library(), GpuLibrary(), ProgramInC()
_WASM_MODULE, _OPENCL_LIBRARY = WasmModule(), OpenClLibrary()


def product_of(board: Board) -> Product:
    """Return what a board gets."""
    if board.target.kind == "c":
        return _PROGRAM_IN_C
    if board.in_engine:
        return _WASM_MODULE
    if board.target.opencl is not None:
        return _OPENCL_LIBRARY
    return _LIBRARY if board.target.gpu is None else _GPU_LIBRARY


def product_in(manifest: Manifest) -> Product:
    """Return what a bundle holds. Its board's profile may be gone."""
    if manifest.board.in_engine:
        return _WASM_MODULE
    if any(step.kind == "gpu" for step in manifest.steps):
        return _OPENCL_LIBRARY
    return _LIBRARY if manifest.bare_metal is None else _PROGRAM_IN_C
