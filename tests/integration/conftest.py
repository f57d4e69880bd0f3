"""What several modules share."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.libraries import share_libraries
from support.needs import needs
from support.stores import Postgres, postgres_in
from support.twins import share_images

from edgekit.base.tvm_compat import load_tvm
from edgekit.store.database import Store, close_store, open_store

# Before any test imports TVM by itself, and with it the whole of torch.
load_tvm()


@pytest.fixture(scope="session")
def twin_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for twins and agents. The image and libraries are those of the user's own cache."""
    cache = tmp_path_factory.mktemp("twin-cache")
    share_images(cache)
    share_libraries(cache)
    return cache


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Not in pytest's own folder: another run of pytest closes that to PostgreSQL's user."""
    with (
        tempfile.TemporaryDirectory(prefix="edgekit-postgres-") as place,
        postgres_in(Path(place) / "server") as server,
    ):
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs("postgresql"))])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'deep' / 'store.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    import psycopg

    with contextlib.closing(psycopg.connect(server.url)) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.commit()
    return server.url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = open_store(store_url)
    yield opened
    close_store(opened)
