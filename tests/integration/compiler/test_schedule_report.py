"""Which rule made which kernel: told by the compiler, kept by the bundle, shown by the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.building import request_for, run_edgekit, write_model

from edgekit.building.build import build


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.onnx")


def test_a_bundle_lists_its_kernels_and_their_rules(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))

    first = build(request_for(model), tmp_path / "first")
    second = build(request_for(model), tmp_path / "second")

    kernels = first.bundle.manifest.kernels
    assert kernels
    assert {kernel.rule for kernel in kernels} <= {"product", "depthwise", "generic"}
    assert second.from_cache
    assert second.bundle.manifest.kernels == kernels


def test_a_build_says_how_many_kernels_each_rule_made(model: Path, tmp_path: Path) -> None:
    cache = {"EDGEKIT_CACHE_DIR": str(tmp_path / "cache")}
    arguments = ("build", str(model), "--board", "local", "-o", "out")

    shown = run_edgekit(*arguments, folder=tmp_path, extra=cache)
    machine_readable = run_edgekit(*arguments, "--json", folder=tmp_path, extra=cache)

    assert shown.code == machine_readable.code == 0
    assert "1 product" in " ".join(shown.out.split())
    kernels = json.loads(machine_readable.out)["bundle"]["manifest"]["kernels"]
    assert "product" in [kernel["rule"] for kernel in kernels]
