"""edgekit cache through the command line, on a cache that a real build filled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.building import Ran, request_for, run_edgekit, write_model

from edgekit.base.cache import BuildCache
from edgekit.building.build import build

USAGE = 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def cache_command(folder: Path, *arguments: str) -> Ran:
    return run_edgekit("cache", *arguments, folder=folder)


def test_an_empty_cache_is_shown_as_such(folder: Path) -> None:
    assert json.loads(cache_command(folder, "size", "--json").out)["size"] == 0
    assert json.loads(cache_command(folder, "list", "--json").out) == []
    assert "empty" in cache_command(folder, "list").out
    assert cache_command(folder, "prune", "--all").code == 0
    assert not (folder / "cache").exists()


def test_twins_images_are_counted_listed_and_pruned_with_the_builds(folder: Path) -> None:
    build(request_for(write_model(folder / "tiny.onnx")), folder / "b", isolated=False)
    image = folder / "cache" / "twins" / ("a1" * 8)
    image.mkdir(parents=True)
    (image / "disk.raw").write_bytes(bytes(5_000_000))

    total = json.loads(cache_command(folder, "size", "--json").out)
    assert [kind["kind"] for kind in total["kinds"]] == ["build", "twin image"]
    assert total["size"] == sum(kind["size"] for kind in total["kinds"]) > 5_000_000
    assert "twin image  1, 4.77 MiB" in cache_command(folder, "size").out
    assert "a1a1a1a1a1a1  twin image" in cache_command(folder, "list").out

    assert (
        "removed 1 twin image, 4.77 MiB" in cache_command(folder, "prune", "--max-size", "1MB").out
    )
    assert not image.exists()
    assert BuildCache().size() > 5000


def test_a_build_is_listed_counted_and_pruned(folder: Path) -> None:
    build(request_for(write_model(folder / "tiny.onnx")), folder / "b", isolated=False)
    total = json.loads(cache_command(folder, "size", "--json").out)
    assert total["entries"] == 1
    assert total["size"] == BuildCache().size() > 5000
    assert "tiny for local" in cache_command(folder, "list").out
    (listed,) = json.loads(cache_command(folder, "list", "--json").out)
    assert listed["title"] == "tiny for local"

    kept = json.loads(cache_command(folder, "prune", "--older-than", "30d", "--json").out)
    assert kept["removed"] == []
    assert cache_command(folder, "prune", "--max-size", "1GB").code == 0
    assert BuildCache().size() > 5000
    pruned = cache_command(folder, "prune", "--max-size", "1kB")
    assert "removed 1 build" in pruned.out
    assert BuildCache().entries() == ()


@pytest.mark.parametrize(
    "arguments", [[], ["--older-than", "soon"], ["--max-size", "lots"], ["--older-than"]]
)
def test_pruning_what_was_not_said_is_refused(folder: Path, arguments: list[str]) -> None:
    ran = cache_command(folder, "prune", *arguments)
    assert ran.code == USAGE
    assert "hint:" in ran.err
