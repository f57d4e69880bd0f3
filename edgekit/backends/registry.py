"""Backends by name: edgekit's own, and those of other packages."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from edgekit.backends.base import Backend
from edgekit.base.errors import MissingToolError, UsageError
from edgekit.base.wording import did_you_mean

ENTRY_POINT_GROUP = "edgekit.backends"

_OWN = {
    "ncnn": "edgekit.backends.ncnn",
    "acl": "edgekit.backends.acl",
    "onednn": "edgekit.backends.onednn",
    "tensorrt": "edgekit.backends.tensorrt",
}


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends, without importing them."""
    return (*_OWN, *sorted(name for name in _foreign() if name not in _OWN))


def load_backend(name: str) -> Backend:
    if name in _OWN:
        backend: Backend = import_module(_OWN[name]).BACKEND
        return backend
    found = _foreign().get(name)
    if found is None:
        raise UsageError(
            f"there is no backend {name!r}",
            hint=did_you_mean(name, backend_names(), f"there are {', '.join(backend_names())}"),
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


def origin_of(name: str) -> str:
    """Return a backend's package with its version; empty for edgekit itself."""
    point = None if name in _OWN else _foreign().get(name)
    return f"{point.dist.name} {point.dist.version}" if point and point.dist else ""


@lru_cache(maxsize=1)
def _foreign() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
