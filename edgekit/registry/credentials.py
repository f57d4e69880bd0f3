"""Finds the user's credentials for a registry. They are never shown."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.decode import decode_json
from edgekit.base.errors import BadInputError
from edgekit.base.files import storage_errors
from edgekit.base.paths import named_path

USER = "EDGEKIT_REGISTRY_USER"
PASSWORD = "EDGEKIT_REGISTRY_PASSWORD"
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str = field(repr=False)

    @property
    def header(self) -> str:
        pair = f"{self.user}:{self.password}".encode()
        return "Basic " + base64.b64encode(pair).decode("ascii")


@dataclass(frozen=True)
class _Login:
    auth: str = field(default="", repr=False)


@dataclass(frozen=True)
class _DockerConfig:
    """The part of docker's config.json that holds logins."""

    auths: Mapping[str, _Login] = field(default_factory=dict)


def find_credentials(host: str) -> Credentials | None:
    """Find the login for a host: in the environment, then in docker's config.json."""
    user, password = os.environ.get(USER), os.environ.get(PASSWORD)
    if user and password:
        return Credentials(user, password)
    file = (named_path("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    if not file.is_file():
        return None
    with storage_errors("read the logins", file), file.open("rb") as stream:
        data = stream.read(_LARGEST)
    try:
        logins = decode_json(_DockerConfig, data, ignore_unknown=True).auths
        login = next((logins[key] for key in (host, f"https://{host}") if key in logins), None)
        if login is None or not login.auth:
            return None
        pair = base64.b64decode(login.auth, validate=True).decode()
    except ValueError as error:
        # The reason may quote a password.
        raise BadInputError(
            f"{file} does not hold logins as docker writes them",
            hint=f"log in again with docker or podman, or set {USER} and {PASSWORD}",
        ) from error.with_traceback(None)
    name, colon, secret = pair.partition(":")
    return Credentials(name, secret) if colon else None
