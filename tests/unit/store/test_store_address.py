"""A store is named by what tells it from others, and never by a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.database_url import read_database_url, without_secrets
from edgekit.base.errors import UsageError
from edgekit.project.file import choose_store
from edgekit.store.address import UNREADABLE, default_url, name_of, secrets_of

SECRET = "s3cr3t"
WITH_SECRETS = (
    f"postgresql://me:{SECRET}@db/x",
    f"postgresql://me:{SECRET}/{SECRET}@db/x",
    f"postgresql://me:{SECRET}@{SECRET}@db:5432/x",
    f"postgresql://me:{SECRET}?{SECRET}#{SECRET}@db/x",
    f"postgresql+psycopg://:{SECRET}@db/x",
    f"postgresql://db/x?password={SECRET}",
    f"postgresql://db/x?user=me&PASSWORD={SECRET}",
    f"postgresql://db/x?sslpassword={SECRET}&sslmode=require",
    f"postgresql://db/x?a={SECRET}&a={SECRET}",
    f"postgresql://[::1]:7/x?passwd={SECRET}",
    f"postgresql:///x?conninfo=host%3Ddb%20password%3D{SECRET}",
)


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_no_secret_is_in_a_stores_name(url: str) -> None:
    assert SECRET not in name_of(url)
    assert name_of(url) != UNREADABLE
    assert SECRET in " ".join(secrets_of(url))
    assert SECRET not in without_secrets(url)


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_a_url_that_holds_a_password_is_known_by_it(url: str) -> None:
    if not any(word in url for word in ("?a=", "passwd", "conninfo")):
        assert holds_password(url)


def holds_password(url: str) -> bool:
    parts = read_database_url(url)
    return parts is not None and parts.holds_password


def test_a_url_without_a_password_holds_none() -> None:
    for url in (
        "postgresql://me@db:5432/x?sslmode=require",
        "postgresql://db/x?passfile=/home/me/.pgpass",
        "sqlite:////tmp/a.db",
    ):
        assert not holds_password(url)


def test_two_spellings_of_one_store_have_one_name_and_two_stores_have_two() -> None:
    plain = "postgresql://me@db:5432/x"
    assert name_of(plain) == plain
    assert name_of(f"postgresql+psycopg://me:{SECRET}@db:5432/x?sslmode=require") == plain
    sockets = {name_of(f"postgresql:///x?host=/run/{name}") for name in ("a", "b")}
    assert len(sockets) == 2
    assert name_of("postgresql://db/x?user=a&host=b") == name_of("postgresql://db/x?host=b&user=a")


@given(st.text(alphabet="abs3/:?#@%&=[]+", min_size=4), st.sampled_from(["db", "db:1", "[::1]"]))
def test_whatever_a_password_holds_the_name_does_not(password: str, host: str) -> None:
    url = f"postgresql://me:QQ{password}QQ@{host}/x"
    assert "QQ" not in name_of(url)


@pytest.mark.parametrize(
    "file", ["s.db", "./s.db", "../s.db", "~no-such-user/s.db", "s.db?mode=rw"]
)
def test_the_environment_names_an_sqlite_file_by_its_whole_path(
    file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tuned kernels come from it, and the current folder may be a stranger's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_STORE", f"sqlite:///{file}")
    for read in (default_url, lambda: choose_store(None)):
        with pytest.raises(UsageError) as refused:
            read()
        assert f"sqlite:///{tmp_path}/" in str(refused.value.hint)


@pytest.mark.parametrize("file", ["sslrootcert=ca.pem", "sslkey=./k", "passfile=..%2Fpass"])
def test_the_environment_names_certificates_by_their_whole_path(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", f"postgresql://me@lab/runs?sslmode=verify-full&{file}")
    with pytest.raises(UsageError, match="not an absolute path"):
        default_url()


@pytest.mark.parametrize(
    "url", ["sqlite:////tmp/a.db", "sqlite:///~/a.db", "postgresql:///d", "off"]
)
def test_every_other_store_may_be_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_STORE", url)
    assert default_url() == choose_store(None) == url
