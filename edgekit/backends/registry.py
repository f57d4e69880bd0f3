"""Backends by name: edgekit's own, and those of other packages."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from edgekit.backends.base import Backend, KernelBackend
from edgekit.base.errors import MissingToolError, UsageError
from edgekit.base.own_backends import own_backends
from edgekit.base.wording import did_you_mean

ENTRY_POINT_GROUP = "edgekit.backends"


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends that run regions, without importing them."""
    own = [name for name, facts in own_backends().items() if facts.makes == "regions"]
    return (*own, *sorted(name for name in _foreign() if name not in own_backends()))


def kernel_backend_names() -> tuple[str, ...]:
    """Return the names of all backends that make kernels in C, without importing them."""
    return tuple(name for name, facts in own_backends().items() if facts.makes == "kernels")


def load_backend(name: str) -> Backend:
    """Load a backend that runs regions."""
    if name in own_backends() and name in backend_names():
        backend: Backend = import_module(own_backends()[name].package).BACKEND
        return backend
    found = None if name in own_backends() else _foreign().get(name)
    if found is None:
        raise UsageError(
            f"there is no backend {name!r}",
            hint=did_you_mean(name, backend_names(), f"name one of {', '.join(backend_names())}"),
        )
    try:
        backend = found.load()
    except Exception as error:
        package = found.dist.name if found.dist else found.value
        raise MissingToolError(
            f"the backend {name} of the package {package} can't be loaded: "
            f"{type(error).__name__}: {error}",
            hint="install the package again, or uninstall it",
        ) from error
    return backend


def load_kernel_backend(name: str) -> KernelBackend:
    """Load a backend that makes kernels in C: one of `kernel_backend_names`."""
    backend: KernelBackend = import_module(own_backends()[name].package).BACKEND
    return backend


def origin_of(name: str) -> str:
    """Return a backend's package with its version; empty for edgekit itself."""
    point = None if name in own_backends() else _foreign().get(name)
    return f"{point.dist.name} {point.dist.version}" if point and point.dist else ""


@lru_cache(maxsize=1)
def _foreign() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
