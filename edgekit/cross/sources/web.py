"""Reads over HTTPS like pip: with its certificates, proxy and credentials."""

from __future__ import annotations

import base64
import netrc
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit

from edgekit.base.wording import counted, size

_TIMEOUT = 60
_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_BLOCK = 1 << 18


class WebError(Exception):
    """An address that could not be read, with the reason."""


@dataclass(frozen=True)
class Web:
    """Settings of connections."""

    certificates: str | None = None
    """A file of trusted certificates, in place of the system's."""
    proxy: str | None = None
    """A proxy, in place of the environment's."""

    def read(self, address: str, *, accept: str, limit: int) -> tuple[str, bytes]:
        """Return a page's content type and content."""
        with self.opened(address, accept=accept) as answer:
            data = b"".join(blocks(answer, limit))
            return str(answer.headers.get("Content-Type", "text/html")), data

    @contextmanager
    def opened(self, address: str, *, accept: str = "*/*") -> Iterator[Any]:
        """Open an address as a stream with headers; temporary failures are retried."""
        with self._open(address, accept) as answer:
            yield answer

    def _open(self, address: str, accept: str) -> Any:
        bare, authorization = _without_credentials(address)
        if urlsplit(bare).scheme not in ("https", "http", "file"):
            raise WebError(f"{_shown(address)} is no http, https or file address")
        request = urllib.request.Request(bare, headers={"Accept": accept})
        if authorization:
            request.add_unredirected_header("Authorization", authorization)
        opener = self._opener()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return opener.open(request, timeout=_TIMEOUT)
            except (URLError, OSError, HTTPException) as error:
                final = isinstance(error, HTTPError) and error.code < 500
                if final or attempt == _ATTEMPTS or bare.startswith("file:"):
                    reason = getattr(error, "reason", error)
                    raise WebError(f"{_shown(address)} could not be read: {reason}") from error
                time.sleep(_PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    def _opener(self) -> urllib.request.OpenerDirector:
        try:
            context = ssl.create_default_context(cafile=self.certificates)
        except OSError as error:
            raise WebError(f"pip's certificates {self.certificates}: {error}") from error
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if self.proxy:
            proxies = {"http": self.proxy, "https": self.proxy}
            handlers.append(urllib.request.ProxyHandler(proxies))
        return urllib.request.build_opener(*handlers)


def length_of(answer: IO[bytes]) -> int | None:
    """Return the length that an answer's header promises; None if it promises none."""
    headers = getattr(answer, "headers", None)
    promised = "" if headers is None else str(headers.get("Content-Length", ""))
    return int(promised) if promised.isascii() and promised.isdigit() else None


def blocks(answer: IO[bytes], limit: int) -> Iterator[bytes]:
    """Read an answer in blocks; raise WebError if it breaks off or exceeds the limit."""
    total = 0
    while True:
        try:
            block = answer.read(_BLOCK)
        except (OSError, HTTPException) as error:
            raise WebError(
                f"the connection broke off after {counted(total, 'byte')}: {error}"
            ) from error
        if not block:
            return
        total += len(block)
        if total > limit:
            raise WebError(f"the answer exceeds {size(limit)}")
        yield block


def _without_credentials(address: str) -> tuple[str, str | None]:
    """Split an address into one without credentials and a header with them.

    Credentials come from the address or ~/.netrc.
    """
    parts = urlsplit(address)
    user, password = parts.username, parts.password
    if user is None and parts.scheme == "https" and parts.hostname:
        user, password = _from_netrc(parts.hostname)
    if parts.username is not None:
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    if user is None:
        return urlunsplit(parts), None
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return urlunsplit(parts), "Basic " + base64.b64encode(pair.encode()).decode("ascii")


def _from_netrc(host: str) -> tuple[str | None, str | None]:
    file = Path("~/.netrc").expanduser()
    try:
        found = netrc.netrc(str(file)).authenticators(host) if file.is_file() else None
    except (OSError, netrc.NetrcParseError):
        return None, None
    return (found[0], found[2]) if found else (None, None)


def _shown(address: str) -> str:
    """Return an address for messages: without credentials, and short."""
    return _without_credentials(address)[0][:200]
