"""Who is talked to, and what it is told: TLS, plain HTTP, passwords, tokens."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.needs import needs
from support.registry import RegistryServer, running_registry
from support.registry_login import (
    FOREIGN,
    PASSWORD,
    USER,
    make_certificate,
    token_server,
    write_docker_login,
    write_passwords,
)

import edgekit
from edgekit.base.errors import BadInputError, MissingToolError, RegistryError, UsageError
from edgekit.bundle.folder import Bundle
from edgekit.registry.credentials import find_credentials

pytestmark = needs("docker-registry")


@pytest.fixture(autouse=True)
def foreign_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the foreign name lead to this machine, as the network's own names would."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *more: Any, **named: Any) -> Any:
        return real("127.0.0.1" if host == FOREIGN else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RegistryServer]:
    """A registry that asks for a password."""
    passwords = write_passwords(tmp_path / "htpasswd")
    auth = {"htpasswd": {"realm": "tests", "path": str(passwords)}}
    with running_registry(tmp_path / "guarded", auth=auth) as server:
        yield server


def foreign(server: RegistryServer) -> str:
    return f"oci://{FOREIGN}:{server.port}/net:1"


def requests(server: RegistryServer) -> list[str]:
    return [line for line in server.log.splitlines() if "HTTP/1.1" in line]


def test_a_foreign_host_is_not_reached_by_plain_http(
    registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle
) -> None:
    with pytest.raises(RegistryError, match="can't be reached by TLS"):
        workspace.publish(bundle, foreign(registry))
    assert requests(registry) == []

    workspace.publish(bundle, foreign(registry), plain_http=True)
    assert workspace.fetch(foreign(registry), "fetched", plain_http=True).counter == 1


def test_a_registry_with_tls(
    workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificate(tmp_path)
    tls = {"certificate": str(made.certificate), "key": str(made.key)}
    with running_registry(tmp_path / "tls", http={"tls": tls}) as server:
        for address in (server.address(), foreign(server)):
            with pytest.raises(RegistryError, match=r"self.signed certificate"):
                workspace.publish(bundle, address)
        assert requests(server) == []

        monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
        for address in (server.address(), foreign(server)):
            workspace.publish(bundle, address)
            workspace.fetch(address, "fetched")


@pytest.mark.parametrize("by", ["docker", "environment"])
def test_a_password_of_the_user(
    guarded: RegistryServer,
    workspace: edgekit.Workspace,
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    with pytest.raises(RegistryError, match="asks for a login"):
        workspace.publish(bundle, guarded.address())

    write_docker_login(tmp_path / "docker", guarded.host, PASSWORD if by == "docker" else "old")
    if by == "environment":
        with pytest.raises(RegistryError, match="asks for a login") as refused:
            workspace.publish(bundle, guarded.address())
        assert "old" not in str(refused.value.report())
        monkeypatch.setenv("EDGEKIT_REGISTRY_USER", USER)
        monkeypatch.setenv("EDGEKIT_REGISTRY_PASSWORD", PASSWORD)
    workspace.publish(bundle, guarded.address())

    assert workspace.fetch(guarded.address(), "fetched").counter == 1


def test_a_password_is_not_sent_without_tls(
    guarded: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    write_docker_login(tmp_path / "docker", f"{FOREIGN}:{guarded.port}")

    with pytest.raises(UsageError, match="not sent without TLS") as refused:
        workspace.publish(bundle, foreign(guarded), plain_http=True)

    assert PASSWORD not in str(refused.value.report())
    assert f"auth.user.name={USER}" not in guarded.log


def test_a_damaged_docker_config_shows_no_password(
    guarded: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(
        f'{{"auths": {{"{guarded.host}": {{"auth": "{PASSWORD}"}}}}}}'
    )

    with pytest.raises(BadInputError, match="does not hold logins") as refused:
        workspace.publish(bundle, guarded.address())
    assert PASSWORD not in str(refused.value.report())


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make docker's config name a program that keeps logins, and return the program's file."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text('{"auths": {}, "credsStore": "tests"}')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin" / "docker-credential-tests"


def write_helper(program: Path, *lines: str) -> None:
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(0o700)


def test_a_password_that_a_program_of_docker_keeps(
    guarded: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle, helper: Path
) -> None:
    with pytest.raises(MissingToolError, match="docker-credential-tests"):
        workspace.publish(bundle, guarded.address())

    login = f'{{"ServerURL": "%s", "Username": "{USER}", "Secret": "{PASSWORD}"}}'
    write_helper(
        helper,
        '[ "$1" = get ] && read -r host || [ -n "$host" ] || exit 3',
        f"""if [ "$host" = {guarded.host} ]; then printf '{login}' "$host"; exit; fi""",
        "echo credentials not found in native keychain; exit 1",
    )
    workspace.publish(bundle, guarded.address())
    assert workspace.fetch(guarded.address(), "fetched").counter == 1
    assert find_credentials("elsewhere.example") is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"echo '{PASSWORD}'", "did not answer as"),
        (f"echo '{PASSWORD}'; exit 1", "did not hand out"),
        (f"""echo '{{"Username": "<token>", "Secret": "{PASSWORD}"}}'""", "keeps a token"),
    ],
)
def test_a_program_that_keeps_no_password_is_told_without_what_it_says(
    helper: Path, line: str, message: str
) -> None:
    write_helper(helper, line)
    with pytest.raises(BadInputError, match=message) as refused:
        find_credentials("registry.example")
    assert PASSWORD not in str(refused.value.report())


def test_a_registry_that_takes_tokens(
    workspace: edgekit.Workspace, bundle: Bundle, tmp_path: Path
) -> None:
    made = make_certificate(tmp_path)
    with (
        token_server(made, tmp_path) as settings,
        running_registry(tmp_path / "tokens-registry", **settings) as server,
    ):
        with pytest.raises(RegistryError):
            workspace.publish(bundle, server.address())

        write_docker_login(tmp_path / "docker", server.host)
        workspace.publish(bundle, server.address())

        assert workspace.fetch(server.address(), "fetched").counter == 1
