"""A third-party library small enough to be built in a test, and its recipe."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(toy CXX)
option(TOY_TWICE "" OFF)
add_library(toy STATIC toy.cc more.cc)
if(TOY_TWICE)
  target_compile_definitions(toy PRIVATE TOY_FACTOR=2)
endif()
install(TARGETS toy ARCHIVE DESTINATION lib)
install(FILES toy.h DESTINATION include)
"""
SOURCES: Mapping[str, str] = {
    "CMakeLists.txt": CMAKE,
    "LICENSE": "do as you like\n",
    "toy.h": "int toy(int number);\nint more(int number);\n",
    "toy.cc": (
        '#include "toy.h"\n#ifndef TOY_FACTOR\n#define TOY_FACTOR 1\n#endif\n'
        "int toy(int number) { return more(number) * TOY_FACTOR; }\n"
    ),
    "more.cc": '#include "toy.h"\nint more(int number) { return number + 1; }\n',
}
RECIPE = """\
schema = 1
name = "toy"
title = "A toy"
version = "1.0"
license = "none"
architectures = ["aarch64", "x86_64"]

[[archive]]
from = "pypi"
project = "toy"
file = "toy-1.0.tar.gz"
sha256 = "{sha256}"
take = {{ "toy-1.0/LICENSE" = "LICENSE" }}

[cmake]
source = "toy-1.0"
options = {{ TOY_TWICE = "{twice}" }}
take = {{ "include" = "include", "lib/libtoy.a" = "lib/libtoy.a" }}

[products]
include = ["include"]
link = ["lib/libtoy.a"]
"""


def write_toy(
    folder: Path, changes: Mapping[str, str] | None = None, *, twice: str = "OFF"
) -> Path:
    """The archive and the recipe in a folder; gives back the recipe's file."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "toy-1.0.tar.gz"
    archive.write_bytes(tarball({**SOURCES, **(changes or {})}))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    recipe = folder / "toy.toml"
    recipe.write_text(RECIPE.format(sha256=digest, twice=twice), encoding="utf-8")
    return recipe


def tarball(files: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"toy-1.0/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()
