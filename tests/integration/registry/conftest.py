"""A registry, a small bundle, and a home of its own with one key, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundles import make_bundle
from support.registry import RegistryServer, running_registry

import edgekit
from edgekit.bundle.folder import Bundle
from edgekit.registry import connection
from edgekit.registry.keys import new_key


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr(connection, "_PAUSE_SECONDS", 0.01)
    new_key("mine")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    with running_registry(tmp_path / "registry") as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> edgekit.Workspace:
    return edgekit.Workspace(tmp_path)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "bundle")
