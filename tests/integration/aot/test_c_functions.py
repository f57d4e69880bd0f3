"""Every function that a C tree may call is in the libraries that its build files name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.building import write_model
from support.c_builds import Built, built_tree, make
from support.needs import needs

from edgekit.aot.c_text import C_TYPES
from edgekit.aot.loops.expressions import FUNCTIONS
from edgekit.aot.loops.helpers import HELPERS

TWO_OPERANDS = frozenset({"atan2", "copysign", "fmod", "hypot", "nextafter", "pow"})
FOR_ARM = ("CC=arm-none-eabi-gcc", "AR=arm-none-eabi-ar")
"""The options with newlib's semihosting for what a test prints."""
FLAGS_FOR_ARM = "CFLAGS=-O1 -mcpu=cortex-m4 -mthumb --specs=rdimon.specs -Werror"


def calls() -> str:
    """A C function for each of <math.h> and of the helpers, in both widths, that calls it."""
    lines = ["#include <math.h>", *HELPERS.values()]
    for name in sorted(FUNCTIONS):
        for kind, suffix in (("float", "f"), ("double", "")):
            second = (f", {kind} b", ", b") if name in TWO_OPERANDS else ("", "")
            lines += [
                f"{kind} net_call_{name}{suffix}({kind} a{second[0]});",
                f"{kind} net_call_{name}{suffix}({kind} a{second[0]})",
                f"{{ return {name}{suffix}(a{second[1]}); }}",
            ]
    for name in HELPERS:
        if "_of_" in name:
            result, _, source = name.removeprefix("ek_").partition("_of_")
            lines.append(_call(name, C_TYPES[result], C_TYPES[source], 1))
        else:
            word = C_TYPES[name.rpartition("_")[2]]
            lines.append(_call(name, word, word, 2))
    return "\n".join(lines) + "\n"


def _call(name: str, result: str, source: str, operands: int) -> str:
    given = ", ".join(f"{source} {letter}" for letter in "ab"[:operands])
    head = f"{result} net_call_{name}({given})"
    return f"{head};\n{head}\n{{ return {name}({', '.join('ab'[:operands])}); }}"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A model's tree, whose test program calls all of them."""
    place = tmp_path_factory.mktemp("functions")
    built = built_tree(write_model(place / "model.onnx"), place / "tree")
    text = (place / "tree" / "net.c").read_text()
    own = [source for source in HELPERS.values() if source in text]
    extra = calls()
    for source in own:
        extra = extra.replace(source, "")
    (place / "tree" / "net.c").write_text(text + extra)
    return built


def test_the_makefile_links_all_of_them(tree: Built) -> None:
    assert len(FUNCTIONS) > 30 and len(HELPERS) > 60
    made = make(tree.folder, "clean", "test", "CFLAGS=-O1 -Werror")
    assert made.returncode == 0, made.stdout + made.stderr


@needs("gcc-arm")
def test_they_link_for_a_microcontroller(tree: Built) -> None:
    made = make(tree.folder, "clean", "test/test_net", *FOR_ARM, FLAGS_FOR_ARM)
    assert made.returncode == 0, made.stdout + made.stderr


@needs("cmake")
def test_cmake_links_all_of_them(tree: Built, tmp_path: Path) -> None:
    for command in (
        ["cmake", "-S", str(tree.folder), "-B", str(tmp_path)],
        ["cmake", "--build", str(tmp_path)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
