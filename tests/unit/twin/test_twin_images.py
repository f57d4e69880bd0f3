"""The room that twins' images take is given back, and never that of one which is needed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from edgekit.base.json_text import json_text
from edgekit.building.cached import cached_entries, prune_cached
from edgekit.twin.image import ImageContents, ensure_image, held_image, image_lock
from edgekit.twin.images import stored_images
from edgekit.twin.processes import machines_dir
from edgekit.twin.recipe import default_recipe
from edgekit.twin.state import Hardware, TwinState, write_state

RECIPE = default_recipe("bookworm")
DAY = 86400.0


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image as a build leaves it, with less in it."""
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "twins" / RECIPE.digest()[:16]
    folder.mkdir(parents=True)
    for name, size in (("kernel", 5000), ("initramfs", 3000), ("disk.raw", 1 << 30)):
        with (folder / name).open("wb") as stream:
            stream.write(bytes(1000))
            stream.truncate(size)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    contents = ImageContents(RECIPE.digest(), "bookworm", "linux", (), 1.0, sizes)
    (folder / "image.json").write_text(json_text(contents))
    folder.with_suffix(".log").write_text("built")
    return folder


def make_twin(name: str, image: str) -> Path:
    folder = machines_dir() / name
    folder.mkdir(parents=True)
    hardware = Hardware("virt", "cortex-a72", 1, 1 << 30)
    uuid = "00000000-0000-0000-0000-000000000007"
    write_state(folder, TwinState(name, "rpi4", uuid, hardware, image, 40022, wanted=False))
    return folder


def prune_all() -> tuple[list[str], list[str]]:
    """What was removed, and what was in use."""
    pruned = prune_cached(older_than=None, max_bytes=0)
    return [entry.key for entry in pruned.removed], [entry.key for entry in pruned.in_use]


def test_an_image_is_listed_with_the_room_that_it_really_takes(image: Path) -> None:
    (entry,) = stored_images()
    assert (entry.key, entry.kind, entry.title) == (image.name, "twin image", "Debian bookworm")
    assert 0 < entry.size < 1 << 20
    assert cached_entries() == (entry,)


def test_an_image_that_no_twin_lies_on_is_removed_whole(image: Path) -> None:
    make_twin("other", "f" * 64)
    assert prune_all() == ([image.name], [])
    assert [path.name for path in image.parent.iterdir()] == ["machines"]


def test_a_stopped_twins_image_stays_until_the_twin_is_deleted(image: Path) -> None:
    twin = make_twin("kitchen", RECIPE.digest())
    assert prune_all() == ([], [image.name])
    assert ensure_image(RECIPE).disk.is_file()
    (twin / "twin.json").unlink()
    assert prune_all() == ([image.name], [])


def test_a_twin_of_which_nobody_knows_the_image_keeps_them_all(image: Path) -> None:
    (make_twin("kitchen", "f" * 64) / "twin.json").write_text("{")
    assert prune_all() == ([], [image.name])


def test_an_image_that_a_starting_twin_is_about_to_name_stays(image: Path) -> None:
    with held_image(RECIPE) as held:
        assert prune_all() == ([], [image.name])
        assert held.kernel.is_file()
    assert prune_all() == ([image.name], [])


def test_using_an_image_counts_as_its_age(image: Path) -> None:
    then = time.time() - 40 * DAY
    os.utime(image / "image.json", (then, then))
    ensure_image(RECIPE)
    assert prune_cached(older_than=30 * DAY, max_bytes=None).removed == ()
    os.utime(image / "image.json", (then, then))
    assert len(prune_cached(older_than=30 * DAY, max_bytes=None).removed) == 1


def test_a_damaged_image_is_listed_and_removed(image: Path) -> None:
    (image / "image.json").write_text("{")
    assert [entry.title for entry in stored_images()] == ["Debian ?"]
    assert prune_all() == ([image.name], [])


def test_what_a_killed_build_left_is_swept_and_foreign_folders_are_not(image: Path) -> None:
    leftover = image.parent / f".{image.name}.0123456789ab.edgekit-tmp"
    foreign = image.parent / "notes"
    leftover.mkdir()
    foreign.mkdir()
    prune_all()
    assert foreign.is_dir()
    assert not leftover.exists()
    assert not image_lock(image).exists()
