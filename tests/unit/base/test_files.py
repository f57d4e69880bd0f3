"""Files appear whole or not at all, locks exclude, and names stay inside their folder."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import BundleError, StorageError
from edgekit.base.files import (
    clear_directory,
    copy_tree,
    exclusive_lock,
    replace_directory,
    replace_file,
    safe_join,
    scratch_directory,
    sha256_bytes,
    sha256_file,
    storage_errors,
    sweep_leftovers,
    try_lock,
    write_atomically,
)


def names_in(folder: Path) -> set[str]:
    return {item.name for item in folder.iterdir()}


def test_sha256_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000
    (tmp_path / "f").write_bytes(data)
    assert sha256_file(tmp_path / "f") == sha256_bytes(data)
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_bytes(b"abc") == known


def test_an_atomic_write_replaces_the_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", "one")
    write_atomically(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert names_in(tmp_path) == {"f"}


def test_a_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", "old")
    with pytest.raises(KeyboardInterrupt), replace_file(tmp_path / "f") as stream:
        stream.write(b"half of the ne")
        raise KeyboardInterrupt
    assert (tmp_path / "f").read_text() == "old"
    assert names_in(tmp_path) == {"f"}


def test_new_files_and_folders_obey_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "f", "x")
        with replace_directory(tmp_path / "d"):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o750


def test_a_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    with replace_directory(tmp_path / "a/b/c") as folder:
        (folder / "f").write_text("x")
        assert not (tmp_path / "a/b/c").exists()
    assert names_in(tmp_path / "a/b") == {"c"}
    assert (tmp_path / "a/b/c/f").read_text() == "x"


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with replace_directory(tmp_path / "d") as folder:
            (folder / content).write_text(content)
    assert names_in(tmp_path / "d") == {"two"}
    assert names_in(tmp_path) == {"d"}


def test_where_folders_cannot_be_exchanged_they_are_replaced_in_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.base.files._exchange", lambda one, other: False)
    for content in ("one", "two"):
        with replace_directory(tmp_path / "d") as folder:
            (folder / content).write_text(content)
    assert names_in(tmp_path / "d") == {"two"}
    assert names_in(tmp_path) == {"d"}


def test_what_could_not_be_replaced_in_two_steps_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's new content vanishes in between: the second step fails."""
    monkeypatch.setattr("edgekit.base.files._exchange", lambda one, other: False)
    with replace_directory(tmp_path / "d") as folder:
        (folder / "old").write_text("x")
    with pytest.raises(FileNotFoundError), replace_directory(tmp_path / "d") as folder:
        folder.rmdir()
    assert names_in(tmp_path / "d") == {"old"}
    assert names_in(tmp_path) == {"d"}


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failed_replacement_leaves_everything_as_it_was(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    with replace_directory(tmp_path / "d") as folder:
        (folder / "old").write_text("x")
    with pytest.raises(failure), replace_directory(tmp_path / "d") as folder:
        (folder / "new").write_text("x")
        raise failure
    assert names_in(tmp_path / "d") == {"old"}
    assert names_in(tmp_path) == {"d"}


def test_a_failed_first_making_takes_its_parents_along(tmp_path: Path) -> None:
    with pytest.raises(ValueError), replace_directory(tmp_path / "a/b/c"):
        raise ValueError
    assert names_in(tmp_path) == set()


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with replace_directory(tmp_path / "link") as folder:
        (folder / "f").write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert names_in(tmp_path / "real") == {"f"}


def test_a_loop_of_links_is_the_file_systems_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for final in (tmp_path / "a", tmp_path / "a" / "inside"):
        with pytest.raises(OSError, match="symbolic links"), replace_directory(final):
            pytest.fail("there is no such place")


def test_a_place_where_nothing_can_be_made_is_no_endless_try() -> None:
    with pytest.raises(FileNotFoundError), replace_directory(Path("/proc/edgekit")):
        pytest.fail("there is no such place")
    with pytest.raises(FileNotFoundError), replace_file(Path("/proc/edgekit")):
        pytest.fail("there is no such place")


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("precious")
    with pytest.raises(NotADirectoryError), replace_directory(tmp_path / "f"):
        pass
    assert (tmp_path / "f").read_text() == "precious"


KILLED_WHILE_FILLING = """
import sys, time
from pathlib import Path
from edgekit.base.files import replace_directory, replace_file
with replace_directory(Path(sys.argv[1]) / "d") as folder, \
        replace_file(Path(sys.argv[1]) / "f") as stream:
    (folder / "half").write_text("x")
    print("filling", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def killed_midway(tmp_path: Path) -> Path:
    """A folder in which a process was killed (kill -9) while it wrote a folder and a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_FILLING, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process, process.stdout as stdout:
        try:
            assert stdout.readline() == b"filling\n"
            assert sweep_leftovers(tmp_path) == 0, "a living process's folder was swept"
        finally:
            process.send_signal(signal.SIGKILL)
    return tmp_path


def test_sweeping_touches_nothing_that_a_link_of_that_name_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/f").write_text("precious")
    link = tmp_path / ".d.0123456789ab.edgekit-tmp"
    link.symlink_to("kept")
    assert sweep_leftovers(tmp_path) == 0
    assert link.is_symlink()
    assert names_in(tmp_path / "kept") == {"f"}


def test_what_a_killed_process_left_is_swept(killed_midway: Path) -> None:
    assert len(names_in(killed_midway)) == 2
    assert sweep_leftovers(killed_midway) == 2
    assert names_in(killed_midway) == set()


def test_the_next_replacement_sweeps_for_its_own_name_only(killed_midway: Path) -> None:
    with replace_directory(killed_midway / "other"):
        pass
    assert len(names_in(killed_midway)) == 3
    with replace_directory(killed_midway / "d"):
        pass
    assert {name for name in names_in(killed_midway) if ".d." in name} == set()


def test_a_scratch_folder_is_gone_afterwards(tmp_path: Path) -> None:
    with scratch_directory(tmp_path / "work") as scratch:
        (scratch / "deep").mkdir()
        (scratch / "deep/f").write_text("x")
    assert names_in(tmp_path / "work") == set()


def test_clearing_keeps_the_folder_and_what_links_point_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/f").write_text("x")
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/link").symlink_to(tmp_path / "kept")
    clear_directory(tmp_path / "d")
    assert names_in(tmp_path / "d") == set()
    assert names_in(tmp_path / "kept") == {"f"}


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../f", "a/../../f", "a/..", "/etc/passwd", "a\\b", "C:f", "a\0b"),
        *("a\nb", "a//b", "./a", "a/", "\ud800", "\x1b[31m", "\x9b31m", "\x7f", "a" * 300),
    ],
)
def test_unsafe_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError) as caught:
        safe_join(tmp_path, name)
    assert str(tmp_path) not in caught.value.message
    assert caught.value.message.isprintable()


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/out").symlink_to("..")
    with pytest.raises(BundleError, match="symbolic link"):
        safe_join(tmp_path / "in", "out/secret")


@given(st.text(max_size=40))
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    root = Path("/nowhere/at all")
    try:
        joined = safe_join(root, name)
    except BundleError:
        return
    assert root in Path(os.path.normpath(joined)).parents


def test_ordinary_names_are_joined(tmp_path: Path) -> None:
    assert safe_join(tmp_path, "reference/input-0.npy") == tmp_path / "reference/input-0.npy"
    assert safe_join(tmp_path, "ünï cödé..so") == tmp_path / "ünï cödé..so"


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.ENOSPC, "full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission")],
)
def test_what_the_file_system_refuses_is_explained(number: int, says: str) -> None:
    with (
        pytest.raises(StorageError) as caught,
        storage_errors("write the bundle", Path("/somewhere")),
    ):
        raise OSError(number, os.strerror(number), "/somewhere/f")
    assert "could not write the bundle at /somewhere/f" in caught.value.message
    assert caught.value.hint is not None
    assert says in caught.value.hint


def test_a_copy_that_fails_is_told_by_where_it_was_to_go() -> None:
    with pytest.raises(StorageError) as caught, storage_errors("copy", Path("/to")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/from/f", None, "/to/f")
    assert "/to/f" in caught.value.message
    assert "/from" not in caught.value.message


def test_a_temporary_name_is_told_as_the_name_it_stands_for() -> None:
    with pytest.raises(StorageError) as caught, storage_errors("write", Path("/to")):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/to/.b.0123456789ab.edgekit-tmp/f")
    assert "/to/b/f" in caught.value.message


def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), storage_errors("divide", Path("/")):
        raise ZeroDivisionError


def _count_up(folder: str, rounds: int) -> None:
    for _ in range(rounds):
        with exclusive_lock(Path(folder) / "lock"):
            number = int((Path(folder) / "number").read_text())
            time.sleep(0.001)
            (Path(folder) / "number").write_text(str(number + 1))
            if number % 3 == 0:
                (Path(folder) / "lock").unlink()


def test_a_lock_excludes_even_when_its_file_is_removed_by_holders(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_count_up, args=(str(tmp_path), 40)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (tmp_path / "number").read_text() == "120"


def test_a_lock_that_is_free_is_taken_without_a_word(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "lock", _interrupt):
        assert try_lock(tmp_path / "lock") is None


def test_waiting_for_a_lock_is_announced_before_it_begins(tmp_path: Path) -> None:
    held = try_lock(tmp_path / "lock")
    assert held is not None
    with pytest.raises(InterruptedError), exclusive_lock(tmp_path / "lock", _interrupt):
        pass
    os.close(held)


def test_waiting_is_announced_once_however_often_the_lock_slips_away(tmp_path: Path) -> None:
    """While we wait, the holder removes the file, and a third one locks a new one."""
    lock = tmp_path / "lock"
    first = try_lock(lock)
    assert first is not None
    waits: list[str] = []

    def holder_leaves_and_another_comes() -> None:
        waits.append("waits")
        if len(waits) == 1:
            lock.unlink()
            second = try_lock(lock)
            assert first is not None and second is not None
            os.close(first)
            threading.Timer(0.2, os.close, (second,)).start()

    with exclusive_lock(lock, holder_leaves_and_another_comes):
        assert try_lock(lock) is None
    assert waits == ["waits"]


def test_a_lock_whose_file_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder removes it between our opening and locking: that lock excludes no process."""
    lock = tmp_path / "lock"
    flock = fcntl.flock

    def after_removal(descriptor: int, operation: int) -> None:
        lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr("edgekit.base.files.fcntl.flock", after_removal)
    assert try_lock(lock) is None


def _interrupt() -> None:
    raise InterruptedError


def test_a_tree_is_copied_and_a_refused_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "file").write_bytes(b"content")
    copy_tree(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to" / "deep" / "file").read_bytes() == b"content"

    (tmp_path / "taken" / "deep" / "file").mkdir(parents=True)
    with (
        pytest.raises(StorageError, match="deep/file: is a directory"),
        storage_errors("copy it", tmp_path / "taken"),
    ):
        copy_tree(tmp_path / "from", tmp_path / "taken")
