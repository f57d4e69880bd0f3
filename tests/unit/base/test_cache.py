"""The cache keeps what it was given, says what it holds, and gives room back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from edgekit.base.cache import BuildCache

DAY = 86400.0


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "builds")


def key_of(number: int) -> str:
    return f"{number:064x}"


def store(cache: BuildCache, number: int, size: int = 1000, age: float = 0.0) -> str:
    key = key_of(number)
    with cache.locked(key), cache.storing(key, "build", f"model {number}") as folder:
        (folder / "data").write_bytes(bytes(size))
    record = cache.root / "entries" / key / "entry.json"
    then = time.time() - age
    os.utime(record, (then, then))
    return key


def keys_of(cache: BuildCache) -> list[str]:
    return [entry.key for entry in cache.entries()]


def test_a_new_cache_is_empty_and_makes_no_folder(cache: BuildCache) -> None:
    assert cache.entries() == ()
    assert cache.size() == 0
    assert cache.prune(max_bytes=0).removed == ()
    assert cache.find(key_of(1)) is None
    assert not cache.root.exists()


def test_what_is_stored_is_found(cache: BuildCache) -> None:
    key = store(cache, 1)
    found = cache.find(key)
    assert found is not None
    assert (found / "data").stat().st_size == 1000
    (entry,) = cache.entries()
    assert (entry.kind, entry.title) == ("build", "model 1")
    assert 1000 < entry.size == cache.size() < 1300


def test_half_an_entry_is_never_found(cache: BuildCache) -> None:
    key = key_of(1)
    with (
        pytest.raises(KeyboardInterrupt),
        cache.locked(key),
        cache.storing(key, "build", "x") as folder,
    ):
        (folder / "data").write_text("half")
        assert cache.find(key) is None
        raise KeyboardInterrupt
    assert cache.find(key) is None
    assert list((cache.root / "entries").iterdir()) == []


def test_finding_an_entry_counts_as_using_it(cache: BuildCache) -> None:
    old, new = store(cache, 1, age=2 * DAY), store(cache, 2, age=DAY)
    assert keys_of(cache) == [new, old]
    cache.find(old)
    assert keys_of(cache) == [old, new]


def test_storing_again_replaces(cache: BuildCache) -> None:
    store(cache, 1, size=10)
    key = store(cache, 1, size=20)
    found = cache.find(key)
    assert found is not None
    assert (found / "data").stat().st_size == 20


def test_what_was_not_used_for_long_is_pruned(cache: BuildCache) -> None:
    store(cache, 1, age=40 * DAY)
    kept = store(cache, 2, age=20 * DAY)
    pruned = cache.prune(older_than=30 * DAY)
    assert [entry.title for entry in pruned.removed] == ["model 1"]
    assert pruned.freed > 1000
    assert keys_of(cache) == [kept]


def test_the_least_recently_used_go_first(cache: BuildCache) -> None:
    store(cache, 1, size=10_000, age=3)
    middle = store(cache, 2, size=10_000, age=2)
    newest = store(cache, 3, size=10_000, age=1)
    cache.prune(max_bytes=25_000)
    assert keys_of(cache) == [newest, middle]
    cache.prune(max_bytes=0)
    assert keys_of(cache) == []
    assert list((cache.root / "entries").iterdir()) == []
    assert list((cache.root / "locks").iterdir()) == []


def test_a_cache_that_just_fits_is_left_alone(cache: BuildCache) -> None:
    store(cache, 1, age=1)
    store(cache, 2)
    assert cache.prune(max_bytes=cache.size()).removed == ()
    assert len(cache.prune(max_bytes=cache.size() - 1).removed) == 1


def test_pruning_without_a_limit_removes_nothing(cache: BuildCache) -> None:
    key = store(cache, 1, age=1000 * DAY)
    assert cache.prune().removed == ()
    assert keys_of(cache) == [key]


def test_what_a_process_works_with_is_kept(cache: BuildCache) -> None:
    busy, idle = store(cache, 1), store(cache, 2)
    with cache.locked(busy):
        pruned = cache.prune(max_bytes=0)
    assert [entry.key for entry in pruned.removed] == [idle]
    assert [entry.key for entry in pruned.in_use] == [busy]
    assert keys_of(cache) == [busy]


def test_what_is_in_use_counts_towards_the_limit(cache: BuildCache) -> None:
    old, busy = store(cache, 1, size=1000, age=1), store(cache, 2, size=10_000)
    with cache.locked(busy):
        pruned = cache.prune(max_bytes=5000)
    assert [entry.key for entry in pruned.removed] == [old]


def test_whoever_takes_a_lock_sweeps_what_a_killed_build_left(cache: BuildCache) -> None:
    store(cache, 1)
    left = cache.root / "entries" / f".{key_of(2)}.0123456789ab.edgekit-tmp"
    left.mkdir()
    with cache.locked(key_of(3)):
        assert not left.exists()


def test_an_entry_without_its_record_is_no_hit_but_is_listed_and_pruned(
    cache: BuildCache,
) -> None:
    key = store(cache, 1)
    (cache.root / "entries" / key / "entry.json").unlink()
    assert cache.find(key) is None
    assert [entry.title for entry in cache.entries()] == ["?"]
    cache.prune(max_bytes=0)
    assert cache.entries() == ()


@pytest.mark.parametrize("record", ["", "[]", "{}", "null", '{"kind": 1}', "\udcff"])
def test_a_damaged_record_does_not_hide_the_entry(cache: BuildCache, record: str) -> None:
    key = store(cache, 1)
    file = cache.root / "entries" / key / "entry.json"
    file.write_bytes(record.encode("utf-8", "surrogateescape"))
    assert keys_of(cache) == [key]


def test_pruning_removes_locks_of_builds_that_failed_but_not_those_in_use(
    cache: BuildCache,
) -> None:
    for number in (1, 2):
        with cache.locked(key_of(number)):
            pass
    with cache.locked(key_of(2)):
        cache.prune(max_bytes=0)
        assert [lock.stem for lock in (cache.root / "locks").iterdir()] == [key_of(2)]


def test_foreign_things_in_the_cache_are_left_alone(cache: BuildCache) -> None:
    store(cache, 1)
    (cache.root / "entries" / "README").write_text("mine")
    assert keys_of(cache) == [key_of(1)]
    cache.prune(max_bytes=0, older_than=0)
    assert (cache.root / "entries" / "README").read_text() == "mine"


def test_a_forgotten_entry_is_gone(cache: BuildCache) -> None:
    key = store(cache, 1)
    with cache.locked(key):
        cache.forget(key)
        cache.forget(key)
    assert cache.find(key) is None
