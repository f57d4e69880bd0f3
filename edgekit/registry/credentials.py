"""Finds the user's credentials for a registry. They are never shown."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.children import TimeoutExpired, run
from edgekit.base.decode import decode_json
from edgekit.base.errors import BadInputError, MissingToolError
from edgekit.base.files import storage_errors
from edgekit.base.paths import named_path

USER = "EDGEKIT_REGISTRY_USER"
PASSWORD = "EDGEKIT_REGISTRY_PASSWORD"
_LARGEST = 1 << 20
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HELPER_SECONDS = 60.0
"""The time for a helper's answer: the user may have to unlock a store of passwords."""
_NONE_KEPT = "credentials not found"
"""The beginning of a helper's answer about a host that it keeps no login of."""
_TOKEN_USER = "<token>"


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
    """The part of docker's config.json that holds logins, or names the programs that keep them."""

    auths: Mapping[str, _Login] = field(default_factory=dict)
    credsStore: str = ""  # noqa: N815 - docker's name
    credHelpers: Mapping[str, str] = field(default_factory=dict)  # noqa: N815

    def helper(self, host: str) -> str:
        """Return the name of the program that keeps the host's login; empty if none does."""
        return self.credHelpers.get(host, self.credsStore)


@dataclass(frozen=True)
class _Kept:
    """The answer of a program that keeps logins."""

    Username: str
    Secret: str = field(repr=False)


def find_credentials(host: str) -> Credentials | None:
    """Find the login for a host: in the environment, then as docker's config.json says."""
    user, password = os.environ.get(USER), os.environ.get(PASSWORD)
    if user and password:
        return Credentials(user, password)
    file = (named_path("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    if not file.is_file():
        return None
    with storage_errors("read the logins", file), file.open("rb") as stream:
        data = stream.read(_LARGEST)
    try:
        config = decode_json(_DockerConfig, data, ignore_unknown=True)
        helper = config.helper(host)
        if helper:
            kept = _ask(helper, host)
            if kept is not None:
                return kept
        logins = config.auths
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


def _ask(helper: str, host: str) -> Credentials | None:
    """Ask the program that keeps the user's logins; None if it keeps none for the host."""
    if not _HELPER.fullmatch(helper):
        raise ValueError("no name of a helper")
    program = f"docker-credential-{helper}"
    hint = f"log in again with docker, or set {USER} and {PASSWORD}"
    try:
        done = run((program, "get"), limit_s=_HELPER_SECONDS, given=host.encode())
    except TimeoutExpired as error:
        raise BadInputError(f"{program} did not answer", hint=hint) from error
    except OSError as error:
        raise MissingToolError(
            f"{program}, which keeps docker's logins, cannot be started: {error.strerror}",
            hint=f"install it, or set {USER} and {PASSWORD}",
        ) from error
    if done.status != 0:
        if done.output.startswith(_NONE_KEPT):
            return None
        raise BadInputError(
            f"{program} did not hand out the login for {host} (status {done.status})", hint=hint
        )
    try:
        kept = decode_json(_Kept, done.output, ignore_unknown=True)
    except ValueError as error:
        # The reason may quote a password.
        raise BadInputError(
            f"{program} did not answer as docker's helpers do", hint=hint
        ) from error.with_traceback(None)
    if kept.Username == _TOKEN_USER:
        raise BadInputError(
            f"{program} keeps a token for {host}, which edgekit does not use",
            hint=f"log in with a user and a password, or set {USER} and {PASSWORD}",
        )
    return Credentials(kept.Username, kept.Secret)
