"""Bundles built for real, for this machine or another, and with a library that misbehaves for
real."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.building.build import build
from edgekit.bundle.folder import Bundle, describe_file, open_bundle, write_manifest
from edgekit.devices.elf import read_elf
from support.building import request_for, write_model

_TRAP = {"x86_64": b"\x0f\x0b", "aarch64": b"\x00\x00\x00\x00"}
_FOREVER = {"x86_64": b"\xeb\xfe", "aarch64": b"\x00\x00\x00\x14"}

_ENTRIES = ("edgekit_run", "__tvm_ffi_")
"""The first words of what runs a model: a program's steps, or the operators of TVM's machine."""


def built_bundle(folder: Path) -> tuple[Path, Bundle]:
    """A small convolution with its model, built for this machine."""
    model = write_model(folder / "model.onnx")
    return model, build(request_for(model), folder / "bundle", isolated=False).bundle


def resealed(bundle: Bundle, folder: Path) -> Bundle:
    """The manifest made to vouch for whatever the files are now."""
    files = tuple(describe_file(folder, f.path, f.role) for f in bundle.manifest.files)
    write_manifest(folder, replace(bundle.manifest, files=files))
    return open_bundle(folder)


def copied(bundle: Bundle, folder: Path) -> Path:
    shutil.copytree(bundle.path, folder)
    return folder


def with_c_library(bundle: Bundle, folder: Path, source: str, compiler: str = "gcc") -> Bundle:
    """The same bundle with a library that the C compiler makes of `source`."""
    copied(bundle, folder)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(folder / "model.so"), "-"],
        input=source,
        text=True,
        check=True,
    )
    return resealed(bundle, folder)


def with_patched_kernels(bundle: Bundle, folder: Path, *, forever: bool = False) -> Bundle:
    """The same bundle, its compiled code made to trap, or to loop, on its first instruction."""
    machine = read_elf(bundle.library).machine
    patch = (_FOREVER if forever else _TRAP)[machine]
    library = copied(bundle, folder) / "model.so"
    data = bytearray(library.read_bytes())
    for address in _operator_addresses(library):
        offset = _file_offset(library, address)
        data[offset : offset + len(patch)] = patch
    library.write_bytes(data)
    return resealed(bundle, folder)


def _operator_addresses(library: Path) -> list[int]:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    found = [line.split() for line in symbols.splitlines()]
    operators = [int(f[0], 16) for f in found if f[1] == "T" and f[2].startswith(_ENTRIES)]
    assert operators, symbols
    return operators


def _file_offset(library: Path, address: int) -> int:
    headers = subprocess.run(
        ["readelf", "-lW", str(library)], capture_output=True, text=True, check=True
    ).stdout
    for line in headers.splitlines():
        parts = line.split()
        if parts[:1] == ["LOAD"]:
            offset, start, _, size = (int(part, 16) for part in parts[1:5])
            if start <= address < start + size:
                return address - start + offset
    raise AssertionError(f"no segment holds {address:#x}")


def built_for_machine(
    model: Path, folder: Path, patch: pytest.MonkeyPatch, board: str = "local"
) -> Bundle:
    """A bundle whose library is for TVM's virtual machine, though the model could be a program."""
    patch.setattr("edgekit.aot.native.compile.program_of", lambda *given: None)
    request = request_for(model, board)
    return build(request, folder, use_cache=False, isolated=False).bundle
