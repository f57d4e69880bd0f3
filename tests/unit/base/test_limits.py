"""A limit of files or memory is named, however the error looks that it shows itself as."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edgekit.base.errors import BuildError, DeviceError, MissingToolError, ResourceError
from edgekit.base.limits import explained_by_limits, limit_named_in, reached_limit


def caused(outer: Exception, inner: BaseException) -> Exception:
    outer.__cause__ = inner
    return outer


@contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "ulimit -n"),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "ulimit -n"),
        (ImportError("libx.so: cannot open shared object file: Too many open files"), "ulimit -n"),
        (MemoryError(), "memory"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "memory"),
        (OSError("libx.so: failed to map segment from shared object"), "memory"),
        (RuntimeError("std::bad_alloc"), "memory"),
        (RuntimeError("can't start new thread"), "no further process or thread"),
    ],
)
def test_a_limit_is_found_below_an_error_that_says_something_else(
    inner: Exception, says: str
) -> None:
    error = caused(MissingToolError("cc does not run", hint="install it again"), inner)

    found = reached_limit(error)

    assert isinstance(found, ResourceError)
    assert says in f"{found.message} {found.hint}"


SENTENCES = [
    "cc does not run: [Errno 24] Too many open files",
    "cc: virtual memory exhausted",
    "gcc: fatal error: cannot execute 'cc1': posix_spawn: Resource temporarily unavailable",
]


@pytest.mark.parametrize("said", SENTENCES)
def test_what_a_program_of_this_host_says_of_a_limit_is_understood(said: str) -> None:
    assert isinstance(reached_limit(MissingToolError(said)), ResourceError)
    assert isinstance(reached_limit(BuildError("it failed", details=(said,))), ResourceError)
    assert reached_limit(DeviceError(said)) is None


@pytest.mark.parametrize(
    "inner", [OSError(errno.ENOENT, "no"), ValueError("Too many open files"), RuntimeError("x")]
)
def test_another_cause_is_left_alone(inner: Exception) -> None:
    assert reached_limit(caused(DeviceError("gone"), inner)) is None


def test_what_a_device_says_of_its_memory_is_no_limit_of_this_process() -> None:
    assert reached_limit(DeviceError("the board is out of memory")) is None


def test_an_error_that_nothing_explains_is_put_down_to_a_very_low_limit_alone() -> None:
    strange = AttributeError("no attribute 'RegisterOpAttr'")
    assert explained_by_limits(strange) is None
    with limited(resource.RLIMIT_NOFILE, 40):
        found = explained_by_limits(strange)
    assert found is not None
    assert "open 40 at once" in found.message and "RegisterOpAttr" in found.message


def test_last_words_of_a_process_tell_of_a_limit() -> None:
    assert limit_named_in("terminate called after throwing an instance of 'std::bad_alloc'")
    assert limit_named_in("ld: cannot open x.o: Too many open files")
    assert limit_named_in("segmentation fault") is None
