"""The cluster that compiles for a workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from edgekit.base.errors import UsageError

if TYPE_CHECKING:
    from edgekit.api.device import Setting
    from edgekit.building.compilation import Compiling
    from edgekit.cluster.cluster import Cluster
    from edgekit.models.model import ModelFormat
    from edgekit.profiles.toolchain import Toolchain
    from edgekit.verbs.ahead import Ahead


def need_dask() -> None:
    """Raise UsageError if the extra `cluster` is not installed."""
    if find_spec("distributed") is None:
        raise UsageError(
            "the packages of a cluster are not installed", hint="pip install 'edgekit[cluster]'"
        )


def cluster_of(
    setting: Setting, form: ModelFormat, toolchains: Iterable[Toolchain] = ()
) -> Callable[[], AbstractContextManager[Cluster]] | None:
    """Return what enters the workspace's cluster; None if this host compiles.

    Workers must have the same packages for models of this form, and the same toolchains.
    """
    if setting.cluster is None:
        return None
    need_dask()
    from edgekit.building.key import packages_of
    from edgekit.cluster.cluster import cluster_at
    from edgekit.cluster.fitness import needs_of
    from edgekit.cluster.place import parse_place

    place = parse_place(setting.cluster, setting.data.start)
    events = setting.events
    return lambda: cluster_at(place, needs_of(toolchains, packages_of(form)), events=events)


def compiling_of(setting: Setting, form: ModelFormat) -> Compiling | None:
    """Return what compiles for the workspace's builds; None for a child process of this host."""
    cluster = cluster_of(setting, form)
    if cluster is None:
        return None
    from edgekit.cluster.compiling import compiling_on

    return compiling_on(cluster)


@contextmanager
def compiled_ahead(setting: Setting, form: ModelFormat) -> Iterator[Ahead | None]:
    """Enter the workspace's cluster for many builds; None if this host compiles."""
    cluster = cluster_of(setting, form)
    if cluster is None:
        yield None
        return
    from edgekit.cluster.compiling import compiling_on
    from edgekit.verbs.ahead import Ahead

    with cluster() as workers:
        yield Ahead(compiling_on(lambda: nullcontext(workers)), workers.width)
