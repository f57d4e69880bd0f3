"""Reads URLs of databases: the database that a URL names, and its secret parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode

_URL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<user>[^:/@]*)(?::(?P<password>.*?))?@)?"
    r"(?P<host>\[[^/?@]*\]|[^/:?@]*)(?::(?P<port>[^/?@]*))?(?P<database>/[^?@]*)?"
    r"(?:\?(?P<query>.*))?",
    re.DOTALL,
)
"""A password may hold any mark, also those that end a host: what may be part of one is taken for
part of it."""
_NAMING = frozenset(("dbname", "host", "hostaddr", "port", "service", "user"))
"""Parameters that identify the database."""
_SECRET = frozenset(("password", "sslpassword"))
PARAMETERS = frozenset(
    (
        *_NAMING,
        *_SECRET,
        *("application_name", "connect_timeout", "options", "passfile", "sslcert", "sslkey"),
        *("sslmode", "sslrootcert", "target_session_attrs"),
    )
)
"""Parameters that a store's URL may have. Any other one may name another server."""


_FILES = frozenset(("passfile", "sslcert", "sslkey", "sslrootcert"))
"""Parameters that name files of this host. libpq takes relative ones from the current folder."""
_SYSTEM = "system"
"""The value of `sslrootcert` for the certificates of the operating system."""


@dataclass(frozen=True)
class DatabaseUrl:
    """The parts of a URL, as they are written."""

    scheme: str
    user: str
    password: str | None
    host: str
    port: str
    database: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Return what identifies the database, without any secret."""
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        naming = sorted(f"{key}={value}" for key, value in self.parameters if key in _NAMING)
        query = f"?{'&'.join(naming)}" if naming else ""
        scheme = self.scheme.partition("+")[0]
        return f"{scheme}://{user}{self.host}{port}{self.database}{query}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return every part that may be a secret, both quoted and unquoted."""
        hidden = [
            value
            for key, value in self.parameters
            if key not in PARAMETERS or key.lower() in _SECRET
        ]
        written = [word for word in (self.password, *hidden) if word]
        return tuple(dict.fromkeys((*written, *map(unquote, written))))

    @property
    def masked(self) -> str:
        """Return the URL with stars in place of secrets."""
        password = "" if self.password is None else ":***"
        user = f"{self.user}{password}@" if self.user or password else ""
        port = f":{self.port}" if self.port else ""
        shown = [
            f"{key}={value if key in PARAMETERS - _SECRET else '***'}"
            for key, value in self.parameters
        ]
        query = f"?{'&'.join(shown)}" if shown else ""
        return f"{self.scheme}://{user}{self.host}{port}{self.database}{query}"

    @property
    def holds_password(self) -> bool:
        return self.password is not None or any(
            key.lower() in _SECRET for key, _ in self.parameters
        )


def read_database_url(url: str) -> DatabaseUrl | None:
    """Parse a URL; None if the text is not one."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return None
    return DatabaseUrl(
        parts["scheme"],
        parts["user"] or "",
        parts["password"],
        parts["host"],
        parts["port"] or "",
        parts["database"] or "",
        tuple(parse_qsl(parts["query"] or "", keep_blank_values=True)),
    )


def relative_files(url: str) -> tuple[str, ...]:
    """List the files that a URL's parameters name by relative paths."""
    parts = read_database_url(url)
    return () if parts is None else tuple(v for k, v in parts.parameters if _is_relative(k, v))


def with_absolute_files(url: str, absolute: Callable[[str], Path]) -> str:
    """Return the URL with absolute paths of files in its parameters.

    A URL with a password is unchanged: a password may hold any character.
    """
    parts = read_database_url(url)
    if parts is None or parts.password is not None or not relative_files(url):
        return url
    query = [(k, str(absolute(v)) if _is_relative(k, v) else v) for k, v in parts.parameters]
    return f"{url.partition('?')[0]}?{urlencode(query, safe='/', quote_via=quote)}"


def _is_relative(parameter: str, value: str) -> bool:
    return parameter in _FILES and value not in ("", _SYSTEM) and not Path(value).is_absolute()


def without_secrets(url: str) -> str:
    """Hide every part of a URL that may be a secret. Other text is unchanged."""
    parts = read_database_url(url)
    return url if parts is None or not parts.secrets else parts.masked
