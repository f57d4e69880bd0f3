"""Computes the cache key of a build: a hash of everything that decides its bytes, and no more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from edgekit.base.files import sha256_bytes
from edgekit.base.paths import PACKAGE
from edgekit.compiler.cuda.toolkit import PACKAGES
from edgekit.compiler.schedules.choices import choice_as_json
from edgekit.models.known_samples import samples_identity

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest
    from edgekit.cross.toolchain import Compiler
    from edgekit.models.model import ModelFormat
    from edgekit.profiles.board import Board

_ALWAYS = ("apache-tvm", "apache-tvm-ffi", "numpy", "ml-dtypes")
_BY_FORMAT: Mapping[ModelFormat, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime"),
    "tflite": ("tflite", "ai-edge-litert"),
    "torch": ("torch",),
}
"""Packages of importer and oracle: another version may give another module or other outputs."""


def build_key(request: BuildRequest, compiler: Compiler) -> str:
    """Return the SHA-256 under which this build is cached."""
    source, board, toolchain = request.source, request.board, request.toolchain
    ingredients = {
        "model": [source.format, source.path.name, source.sha256],
        "board": [
            board.name,
            board.kind,
            board.target.as_json(),
            board.cpu.compile_flags,
        ],
        "toolchain": [
            toolchain.name,
            toolchain.triple,
            asdict(toolchain.tools),
            toolchain.compile_flags,
            toolchain.spelled(board.cpu.compile_flags),
            toolchain.link_flags,
            toolchain.sysroot,
        ],
        "compiler": [compiler.command, compiler.version, compiler.banner],
        "offload": _offload_identity(request),
        "choices": [
            [kernel, choice_as_json(choice)]
            for kernel, choice in sorted(request.choices.of_kernel.items())
        ],
        "ways": [[step, asdict(way)] for step, way in sorted(request.ways.items())],
        "preprocess": {
            name: asdict(preprocess) for name, preprocess in sorted(request.preprocess.items())
        },
        "seed": request.seed,
        "samples": samples_identity(source.path) if request.verified else "",
        "verified": request.verified,
        "prefix": request.prefix,
        "format": request.code_format or "c",
        "bare metal": _bare_metal_identity(board),
        "packages": [
            [name, installed_version(name)]
            for name in (
                *(*_ALWAYS, *_BY_FORMAT[source.format]),
                *(PACKAGES if board.target.gpu is not None else ()),
            )
        ],
        "edgekit": package_digest(),
    }
    return sha256_bytes(json.dumps(ingredients, sort_keys=True).encode())


def _bare_metal_identity(board: Board) -> list[object]:
    """Return the board's memory, the firmware's settings, and the boards of the memory map."""
    if board.kind != "baremetal":
        return []
    from edgekit.aot.memory_map import bare_metal_boards

    firmware = None if board.firmware is None else asdict(board.firmware)
    shown = [
        [b.name, b.cpu.name, b.memory.ram, b.memory.flash] for b in bare_metal_boards(board.folder)
    ]
    return [asdict(board.memory), firmware, board.transport.baud, shown]


def _offload_identity(request: BuildRequest) -> list[object]:
    """Return what identifies the backends; empty if nothing is offloaded."""
    plan = request.offload
    if not plan.backends:
        return []
    if request.board.kind == "baremetal":
        from edgekit.backends.registry import load_kernel_backend

        libraries = [load_kernel_backend(name) for name in plan.backends]
        return [[b.name, b.identity(plan.options.get(b.name, {}))] for b in libraries]
    from edgekit.backends.plan import options_of
    from edgekit.backends.registry import load_backend, origin_of

    backends = [load_backend(name) for name in plan.backends]
    return [
        [
            [
                backend.name,
                backend.version,
                origin_of(backend.name),
                sorted(options_of(backend, plan.options.get(backend.name, {})).items()),
                backend.identity(request.board, request.toolchain),
            ]
            for backend in backends
        ],
        [plan.force, plan.never, asdict(plan.rates), plan.one_layer_each],
        sorted(
            (symbol, record.verdict.pays, record.verdict.reason)
            for symbol, record in plan.measured.items()
        ),
    ]


def installed_version(distribution: str) -> str:
    """Return the version of an installed package, or "absent". Imports nothing."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Hash edgekit's own files, so that a changed compiler makes new builds.

    Profiles are left out: the values that matter are in the key already.
    """
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        relative = file.relative_to(PACKAGE)
        is_profile = relative.parts[0] in ("boards", "libraries", "toolchains")
        if is_profile or "__pycache__" in relative.parts or not file.is_file():
            continue
        digest.update(f"{relative.as_posix()} {file.stat().st_size}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
