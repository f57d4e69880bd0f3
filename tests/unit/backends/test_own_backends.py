"""What is known of edgekit's own backends without importing them, and that no other code knows it.

A backend is a folder with a backend.toml. Its name stands in that folder and in boards/,
libraries/ and toolchains/; the name of a kind of boards stands in profiles/kinds.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.source import PACKAGE, Module, modules

from edgekit.backends.registry import (
    backend_names,
    kernel_backend_names,
    load_backend,
    load_kernel_backend,
)
from edgekit.base.own_backends import own_backends
from edgekit.profiles.kinds import KINDS

FOLDERS = {name: PACKAGE / "backends" / name.replace("-", "_") for name in own_backends()}
OTHER_NAMES = {"acl": "arm compute library", "onednn": "dnnl", "cmsis-nn": "cmsis_nn"}
"""What else a backend's library is called."""
ALSO_AN_ORACLE = ("onnxruntime",)
"""Backends whose library computes expected outputs too, so that other code names it."""
KINDS_WITH_A_NAME_OF_THEIR_OWN = KINDS.keys() - {"local"}
"""All but one: a board, a device and a scope of TVM's are called local too."""


def test_the_folders_are_the_backends() -> None:
    assert set(own_backends()) >= {"acl", "cmsis-nn", "ncnn", "onednn", "onnxruntime", "tensorrt"}
    assert {*backend_names(), *kernel_backend_names()} >= set(own_backends())
    assert not set(backend_names()) & set(kernel_backend_names())


@pytest.mark.parametrize("name", own_backends())
def test_a_backend_has_the_name_of_its_folder(name: str) -> None:
    makes = own_backends()[name].makes
    loaded = load_backend(name) if makes == "regions" else load_kernel_backend(name)

    assert loaded.name == name


def test_no_other_code_names_a_backend() -> None:
    named = [
        f"{module.path.relative_to(PACKAGE)}:{line}: {text[:60]!r} names {name}"
        for name, folder in FOLDERS.items()
        if name not in ALSO_AN_ORACLE
        for pattern in [re.compile(rf"\b({name}|{OTHER_NAMES.get(name, name)})\b", re.IGNORECASE)]
        for module in modules().values()
        if not module.path.is_relative_to(folder)
        for line, text in _literals(module)
        if pattern.search(text)
    ]

    assert not named, "a backend's facts belong into its backend.toml, or into its interface"


def test_no_other_code_imports_a_backend() -> None:
    packages = {facts.package for facts in own_backends().values()}
    importing = [
        f"{module.path.relative_to(PACKAGE)}:{found.line} imports {found.module}"
        for module in modules().values()
        for found in module.imports
        for package in packages
        if f"{found.module}.".startswith(f"{package}.")
        and not f"{module.name}.".startswith(f"{package}.")
    ]

    assert not importing, "backends/registry.py loads backends"


def test_no_other_code_names_a_kind_of_boards() -> None:
    named = [
        f"{module.path.relative_to(PACKAGE)}:{line}: {text!r}"
        for module in modules().values()
        if module.path != PACKAGE / "profiles" / "kinds.py"
        for line, text in _literals(module)
        if text in KINDS_WITH_A_NAME_OF_THEIR_OWN
    ]

    assert not named, "ask the board for a property, or its product"


def test_a_build_does_not_know_what_is_built() -> None:
    """Neither how C is made nor which libraries there are: the product knows."""
    imports = {found.module for found in modules()["edgekit.building.build"].imports}
    of_products = re.compile(r"edgekit\.(aot|backends|compiler|building\.products\.)")

    assert not [name for name in imports if of_products.match(name)]
    assert "edgekit.building.products" in imports


def _literals(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the text of a module but its docstrings, with its line."""
    said = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value
