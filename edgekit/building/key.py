"""Computes the cache key of a build: a hash of everything that decides its bytes, and no more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from edgekit.base.files import sha256_bytes
from edgekit.base.paths import PACKAGE
from edgekit.building.products import product_of
from edgekit.building.request import BuildRequest
from edgekit.compiler.schedules.choices import choice_as_json
from edgekit.cross.toolchain import Compiler
from edgekit.models.known_samples import samples_identity
from edgekit.models.model import ModelFormat

_ALWAYS = ("apache-tvm", "apache-tvm-ffi", "numpy", "ml-dtypes")
_BY_FORMAT: Mapping[ModelFormat, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime"),
    "tflite": ("tflite", "ai-edge-litert"),
    "torch": ("torch", "onnxscript", "onnx"),
    "torchscript": ("torch", "onnxscript", "onnx"),
    "keras": ("keras", "torch", "onnxscript", "onnx"),
    "savedmodel": ("tensorflow", "tflite", "ai-edge-litert"),
}
"""Packages of importer and oracle: another version may give another module or other outputs."""


def build_key(request: BuildRequest, compiler: Compiler) -> str:
    """Return the SHA-256 under which this build is cached."""
    source, board, toolchain = request.source, request.board, request.toolchain
    product = product_of(board)
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
        "offload": product.offload_identity(request),
        "choices": [
            [kernel, choice_as_json(choice)]
            for kernel, choice in sorted(request.choices.of_kernel.items())
        ],
        "ways": [[step, asdict(way)] for step, way in sorted(request.ways.items())],
        "ends": source.ends.identity(),
        "seed": request.seed,
        "samples": samples_identity(source.path) if request.verified else "",
        "verified": request.verified,
        "prefix": request.prefix,
        "format": request.code_format or "c",
        "product": [type(product).__name__, product.board_identity(board)],
        "packages": [
            [name, installed_version(name)]
            for name in (*packages_of(source.format), *product.packages)
        ],
        "edgekit": package_digest(),
    }
    return sha256_bytes(json.dumps(ingredients, sort_keys=True).encode())


def packages_of(form: ModelFormat) -> tuple[str, ...]:
    """Return the packages that import models of a format, and compile them."""
    return (*_ALWAYS, *_BY_FORMAT[form])


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
