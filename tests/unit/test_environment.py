"""docs/security.md lists every environment variable that edgekit reads, sets or passes on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.source import PACKAGE, ROOT, Module, modules

from edgekit.base.errors import UsageError
from edgekit.base.programs import _SEARCH_PATHS
from edgekit.farm.hosts.install import _PASSED_ON, install

READERS = (
    "environ.get",
    "environ.setdefault",
    "environ.pop",
    "getenv",
    "named_path",
    "named_folders",
)
ELSEWHERE = {
    "_variable(recipe.name)": ["EDGEKIT_LIBRARY_*"],
    "_SEARCH_PATH_VARIABLES[kind]": ["EDGEKIT_BOARD_PATH", "EDGEKIT_TOOLCHAIN_PATH"],
    "variable": [],  # the readers' own parameter
    "name": ["TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"],
    "names[0]": [],
}
"""Names that the code computes."""
BY_LIBRARIES = {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"}
"""Read by platformdirs."""


def documented() -> set[str]:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    section = text.partition("## Environment variables")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"`([A-Z0-9_*]+)`", cell)}


def read_by(module: Module, constants: dict[str, str]) -> Iterator[str]:
    for node in module.nodes:
        found: ast.expr | None = None
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(READERS):
            found = node.args[0]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            found = node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("environ.update"):
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
        if isinstance(found, ast.Constant):
            yield str(found.value)
        elif found is not None:
            said = ast.unparse(found)
            yield from [constants[said]] if said not in ELSEWHERE else ELSEWHERE[said]


def constants_of(module: Module) -> dict[str, str]:
    return {
        target.id: str(node.value.value)
        for node in module.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def test_the_table_in_the_docs_is_what_the_code_reads() -> None:
    found = {*_SEARCH_PATHS, *_PASSED_ON, *BY_LIBRARIES}
    own = {name: constants_of(module) for name, module in modules().items()}
    everywhere = {name: value for one in own.values() for name, value in one.items()}
    for name, module in modules().items():
        constants = {**everywhere, **own[name]}
        found |= set(read_by(module, constants))
    for file in (file for end in ("*.cc", "*.h") for file in PACKAGE.rglob(end)):
        text = file.read_text("utf-8")
        found |= set(re.findall(r'(?:getenv|\bset)\("([A-Z_]{3,})"\)', text))
        found |= set(re.findall(r'kParent(?:\[\])? = "([A-Z_]+)"', text))

    assert documented() == found


@pytest.mark.parametrize("named", ["lab.yaml", "./lab.yaml", "../lab.yaml"])
def test_the_farms_unit_names_no_file_of_the_folder_that_it_was_written_in(
    named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (config / "edgekit").mkdir(parents=True)
    device = '[devices.pi]\nboard = "rpi4"\nhost = "10.0.0.5"\n'
    (config / "edgekit/devices.toml").write_text(f"schema = 1\n{device}")
    monkeypatch.setenv("LG_ENV", named)
    with pytest.raises(UsageError, match="LG_ENV"):
        install(None, [], web=False)
    assert not (config / "systemd").exists()

    monkeypatch.setenv("LG_ENV", f"{tmp_path}/lab.yaml")
    monkeypatch.setenv("EDGEKIT_STORE", "postgresql://me:secret@lab/runs")
    (unit,) = install(None, [], web=False).units
    assert f'Environment="LG_ENV={tmp_path}/lab.yaml"' in unit.read_text()
    assert "secret" not in unit.read_text()
