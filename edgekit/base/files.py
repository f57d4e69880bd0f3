"""Writes files so that a crash, a second process or a hostile name does no damage."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from edgekit.base.errors import BundleError, StorageError
from edgekit.base.interrupts import interrupts_deferred

_BLOCK = 1 << 20
_LONGEST_NAME = 200
"""The most characters of a name. With any characters and in any folder it is a valid path."""
_SCRATCH = "edgekit-scratch"
_LEFTOVER = re.compile(r"\.(?P<final>.+)\.[0-9a-f]{12}\.edgekit-tmp")


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as stream:
        return sha256_stream(stream)


def sha256_stream(stream: BinaryIO) -> str:
    """Hash the rest of a stream."""
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file in one step: readers see the old content or the new, never a part."""
    with replace_file(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replace_file(final: Path) -> Iterator[BinaryIO]:
    """Write a file next to `final`, then replace `final` in one step."""
    with ExitStack() as ending:
        with interrupts_deferred():
            temporary, descriptor = _make_locked(final, _new_file)
            ending.callback(temporary.unlink, missing_ok=True)
            stream = ending.enter_context(os.fdopen(descriptor, "w+b"))
        yield stream
        stream.flush()
        os.fsync(descriptor)
        temporary.replace(final)
    _sync_directory(final.parent)


@contextmanager
def replace_directory(final: Path) -> Iterator[Path]:
    """Fill a folder next to `final`, then replace `final` in one step.

    A failed or interrupted filling leaves nothing. The leftovers of a killed process are removed by
    the next call for the same `final`.
    """
    final = _resolved(final)
    if final.exists() and not final.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(final))
    with made_directory(final.parent):
        sweep_leftovers(final.parent, final.name)
        with _temporary_directory(final) as temporary:
            yield temporary
            _put_in_place(temporary, final)


@contextmanager
def made_directory(folder: Path) -> Iterator[None]:
    """Make `folder` and its parents for the block. If the block fails, remove those that are new
    and empty."""
    missing = _missing_directories(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for made in missing:
            with suppress(OSError):  # never made; or not empty: another process uses it by now
                made.rmdir()
        raise


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Make a folder inside `parent` for the block. The folder of a killed process is removed."""
    with ExitStack() as removing:
        with storage_errors("make a scratch folder", parent):
            parent.mkdir(parents=True, exist_ok=True)
            sweep_leftovers(parent, _SCRATCH)
            scratch = removing.enter_context(_temporary_directory(parent / _SCRATCH))
        yield scratch


def clear_directory(folder: Path) -> None:
    """Remove everything in `folder`, and keep the folder."""
    for item in folder.iterdir():
        _remove(item)


def free_space(folder: Path) -> int:
    """Return the bytes that this user may still write on the file system of `folder`."""
    return shutil.disk_usage(folder).free


def bytes_in(folder: Path) -> int:
    """Return the size of a folder's files, which others may write and remove meanwhile."""
    found = 0
    for current, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found += os.lstat(os.path.join(current, name)).st_size  # noqa: PTH118
    return found


def sweep_leftovers(folder: Path, final_name: str | None = None) -> int:
    """Remove the temporary folders and files of ended processes. Return how many.

    A living process holds a lock on its temporary folder, and a dead one can't.
    """
    removed = 0
    for candidate in folder.iterdir():
        match = _LEFTOVER.fullmatch(candidate.name)
        if match is None or final_name not in (None, match["final"]):
            continue
        try:
            descriptor = os.open(candidate, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone already, or not ours to open
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its process is alive
        else:
            _remove(candidate)
            removed += 1
        finally:
            os.close(descriptor)
    return removed


def safe_join(root: Path, relative: str) -> Path:
    """Return `root / relative` for a name from a file, which must not lead out of `root`."""
    problem = _unsafe_name(relative)
    if problem is None:
        joined = root / relative
        try:
            if joined.resolve().is_relative_to(root.resolve()):
                return joined
            problem = "leads out of the bundle through a symbolic link"
        except (OSError, RuntimeError) as error:
            problem = f"cannot be resolved ({error})"
    raise BundleError(
        f"the path {_shown(relative)} {problem}",
        hint="a bundle names its own files only; get it again from the person who built it",
    )


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn errors of the file system into StorageError. Use it around file operations only.

    `doing` names the work: "write the manifest".
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise StorageError(
            f"could not {doing} at {_place(error, path)}: {os.strerror(error.errno).lower()}",
            hint=_STORAGE_HINTS.get(error.errno, "check the path and the file system it is on"),
        ) from error


def copy_tree(source: Path, target: Path) -> None:
    """Copy all files. shutil.copytree hides which one the file system refused, and why."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def path_for_user(path: Path) -> Path:
    """Return the path that the user knows for a path with temporary names.

    A temporary file stands for its final name, a scratch folder for its parent.
    """
    named = Path()
    for part in path.parts:
        match = _LEFTOVER.fullmatch(part)
        if match is not None and match["final"] == _SCRATCH:
            break
        named /= match["final"] if match else part
    return named


@contextmanager
def exclusive_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold `path` against every other process; `on_wait` is called before waiting for one.

    The kernel frees the lock of a killed process. The file may be removed by its holder.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is not None:
                    on_wait()
                    on_wait = None
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_open_at(descriptor, path):
                continue  # removed by the former holder: a lock on it excludes no one
            yield
            return
        finally:
            os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Return the descriptor of a lock on `path`, for the caller to close; None if it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if _is_open_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


_STORAGE_HINTS = {
    errno.ENOSPC: "the disk is full; free some space (edgekit cache prune) or write elsewhere",
    errno.EDQUOT: "your quota is used up; free some space (edgekit cache prune) or write elsewhere",
    errno.EROFS: "the file system is mounted read-only; write elsewhere",
    errno.EACCES: "check who owns the folder and its permissions, or write elsewhere",
    errno.EPERM: "check who owns the folder and its permissions, or write elsewhere",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "the path is a folder; choose another path",
    errno.ELOOP: "a symbolic link leads back to itself; choose another path",
    errno.EBUSY: "the folder is in use, as a mount point perhaps; choose a folder inside it",
    errno.ENOENT: "check that the path exists and that nothing else is removing it",
}


def _unsafe_name(relative: str) -> str | None:
    if not relative:
        return "is empty"
    if any(ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0 for letter in relative):
        return "has a control character in it"
    if any(0xD800 <= ord(letter) < 0xE000 for letter in relative):
        return "is not valid text"
    if len(relative) > _LONGEST_NAME:
        return "is too long"
    if "\\" in relative:
        return "has a backslash in it"
    if relative.startswith("/") or re.match(r"[A-Za-z]:", relative):
        return "is absolute"
    if ".." in PurePosixPath(relative).parts:
        return "leads out of the bundle"
    if str(PurePosixPath(relative)) != relative or relative == ".":
        return "is not written in its shortest form"
    return None


def _place(error: OSError, path: Path) -> Path:
    """Return the path that an error is about: of a copy, the destination."""
    named = error.filename2 or error.filename
    return path_for_user(Path(os.fsdecode(named)) if isinstance(named, (str, bytes)) else path)


def _shown(name: str) -> str:
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:110]}…{text[-1]}"


def _resolved(path: Path) -> Path:
    """Resolve symbolic links. A loop of them is an OSError in all versions of Python."""
    resolved = Path(os.path.realpath(path))
    for part in (resolved, *resolved.parents):
        if part.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(part))
    return resolved


def _temporary_name(final: Path) -> Path:
    return final.with_name(f".{final.name}.{secrets.token_hex(6)}.edgekit-tmp")


@contextmanager
def _temporary_directory(final: Path) -> Iterator[Path]:
    with ExitStack() as ending:
        with interrupts_deferred():
            temporary, descriptor = _make_locked(final, _new_directory)
            ending.callback(os.close, descriptor)
            ending.callback(shutil.rmtree, temporary, ignore_errors=True)
        yield temporary


def _make_locked(final: Path, make: Callable[[Path], int | None]) -> tuple[Path, int]:
    while True:
        temporary = _temporary_name(final)
        descriptor = make(temporary)
        if descriptor is None:
            continue  # removed by another process before it was opened
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_open_at(descriptor, temporary):
            return temporary, descriptor
        os.close(descriptor)  # removed before it was locked


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _new_directory(path: Path) -> int | None:
    path.mkdir()
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _put_in_place(temporary: Path, final: Path) -> None:
    if not final.exists():
        temporary.rename(final)
    elif not _exchange(temporary, final):
        # Where the kernel or file system has no exchange, there is a moment without `final`.
        old = _temporary_name(final)
        final.rename(old)
        try:
            temporary.rename(final)
        except BaseException:
            old.rename(final)
            raise
        shutil.rmtree(old, ignore_errors=True)
    _sync_directory(final.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step (Linux's renameat2); False if that is not supported."""
    at_working_directory, exchange = -100, 2
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    if renameat2(at_working_directory, names[0], at_working_directory, names[1], exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _missing_directories(folder: Path) -> list[Path]:
    """List a folder and its parents that do not exist, the innermost first."""
    missing = []
    for candidate in (folder, *folder.parents):
        if candidate.exists():
            break
        missing.append(candidate)
    return missing


def _is_open_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
