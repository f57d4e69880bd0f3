"""The products of a build. A board's target decides which one it gets."""

from __future__ import annotations

from edgekit.building.product import Product
from edgekit.building.products.library import CudaLibrary, GpuLibrary, Library
from edgekit.building.products.program_in_c import ProgramInC
from edgekit.building.products.wasm_module import WasmModule
from edgekit.bundle.manifest import Manifest
from edgekit.profiles.board import Board

_LIBRARY, _PROGRAM_IN_C, _WASM_MODULE = Library(), ProgramInC(), WasmModule()
_ON_GPU = {"opencl": GpuLibrary(), "cuda": CudaLibrary()}


def product_of(board: Board) -> Product:
    """Return what a board gets."""
    if board.target.kind == "c":
        return _PROGRAM_IN_C
    if board.in_engine:
        return _WASM_MODULE
    limits = board.target.gpu
    return _LIBRARY if limits is None else _ON_GPU[limits.language]


def product_in(manifest: Manifest) -> Product:
    """Return what a bundle holds. Its board's profile may be gone."""
    if manifest.board.in_engine:
        return _WASM_MODULE
    if any(step.kind == "gpu" for step in manifest.steps):
        return _ON_GPU["opencl"]
    return _LIBRARY if manifest.bare_metal is None else _PROGRAM_IN_C
