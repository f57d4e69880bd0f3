"""Sends requests to a registry: TLS, logins, redirects, repeated attempts.

Answers are untrusted: each is read up to a limit, and a login goes to the registry alone.
"""

from __future__ import annotations

import re
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit

from edgekit.base.decode import decode_json
from edgekit.base.errors import RegistryError, UsageError
from edgekit.base.options import option
from edgekit.base.wording import printable
from edgekit.cross.sources.web import WebError, blocks
from edgekit.registry.address import Address
from edgekit.registry.credentials import PASSWORD, USER, find_credentials

ATTEMPTS = 3
_TIMEOUT = 60
_PAUSE_SECONDS = 0.5
_SMALL = 1 << 20
"""The most bytes of a token, or of an explanation of an error."""
_LONGEST_MESSAGE = 200
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429


@dataclass(frozen=True)
class _Token:
    """An answer of a registry's token server."""

    token: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)


@dataclass(frozen=True)
class _Fault:
    message: str = ""


@dataclass(frozen=True)
class _Faults:
    errors: tuple[_Fault, ...] = ()


class BrokenOffError(Exception):
    """A connection that broke off, or a server that is busy: another attempt may succeed."""


class Connection:
    """A connection to the registry of an address."""

    def __init__(self, address: Address, *, plain_http: bool = False) -> None:
        self.address = address
        self._may_be_plain = plain_http or address.is_loopback
        self._authorization: str | None = None
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            _Redirects(self._may_be_plain),
            *([urllib.request.ProxyHandler({})] if address.is_loopback else []),
        )
        self._root = self._find_root("http" if plain_http else "https")

    def url(self, path: str) -> str:
        """Return the URL of a part of the repository."""
        return f"{self._root}/v2/{self.address.name}/{path}"

    @contextmanager
    def opened(
        self,
        method: str,
        url: str,
        *,
        doing: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Iterator[Any]:
        """Send one request; yield the answer, with its headers, as a stream.

        `doing` names the work in messages. BrokenOffError if another attempt may succeed.
        """
        try:
            with self._authorized(method, url, headers or {}, data) as answer:
                yield answer
        except HTTPError as error:
            with error:
                raise self._refused(error, doing) from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLError):
                raise self._no_tls(reason) from error
            raise BrokenOffError(printable(str(reason))[:_LONGEST_MESSAGE]) from error

    def attempts(self, doing: str) -> Iterator[Attempt]:
        """Yield attempts until one succeeds; RegistryError if the last one breaks off too."""
        attempt = Attempt()
        for number in range(1, ATTEMPTS + 1):
            attempt.is_repeated = number > 1
            yield attempt
            if attempt.broken is None:
                return
            if number < ATTEMPTS:
                time.sleep(_PAUSE_SECONDS * number)
        raise RegistryError(
            f"could not {doing} at {self.address.host}: {attempt.broken}",
            hint="check the address and the network, and that the registry runs",
        ) from attempt.broken

    def read(self, answer: IO[bytes], limit: int, what: str) -> bytes:
        """Read a small answer."""
        try:
            return b"".join(blocks(answer, limit))
        except WebError as error:
            raise RegistryError(
                f"{what} of {self.address.host} can't be read: {error}",
                hint="check that the address is a registry's",
            ) from error

    def follow(self, url: str, location: str | None, doing: str) -> str:
        """Return the URL that an answer leads to."""
        target = urljoin(url, location or "")
        if not location or not _is_allowed(target, self._may_be_plain):
            raise RegistryError(
                f"could not {doing} at {self.address.host}: it leads to no https address",
                hint="a proxy before the registry may have to tell it that it is reached by https",
            )
        return target

    def _find_root(self, scheme: str) -> str:
        """Return the registry's URL. One on this machine may speak plain HTTP."""
        root = f"{scheme}://{self.address.host}"
        doing = "reach the registry"
        for attempt in self.attempts(doing):
            with attempt:
                try:
                    request = urllib.request.Request(f"{root}/v2/")
                    with self._opener.open(request, timeout=_TIMEOUT):
                        return root
                except HTTPError as error:
                    with error:
                        if error.code == _UNAUTHORIZED:
                            return root
                        raise self._refused(error, doing) from error
                except (URLError, OSError, HTTPException) as error:
                    reason = getattr(error, "reason", error)
                    if not isinstance(reason, ssl.SSLError):
                        raise BrokenOffError(str(reason)) from error
                    is_certificate = isinstance(reason, ssl.SSLCertVerificationError)
                    if is_certificate or not self._may_be_plain:
                        raise self._no_tls(reason) from error
                    return f"http://{self.address.host}"
        raise AssertionError("the last attempt returns or raises")

    def _authorized(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None
    ) -> Any:
        """Send a request. If the registry asks for a login, send it again with one."""
        try:
            return self._sent(method, url, headers, data)
        except HTTPError as error:
            if error.code != _UNAUTHORIZED or not self._is_own(url):
                raise
            self._authorization = self._answer(
                str(error.headers.get("WWW-Authenticate", "")), error
            )
            error.close()
        return self._sent(method, url, headers, data)

    def _sent(self, method: str, url: str, headers: Mapping[str, str], data: bytes | None) -> Any:
        request = urllib.request.Request(url, data=data, headers=dict(headers), method=method)
        if self._authorization is not None and self._is_own(url):
            request.add_unredirected_header("Authorization", self._authorization)
        return self._opener.open(request, timeout=_TIMEOUT)

    def _answer(self, challenge: str, refusal: HTTPError) -> str:
        """Return the Authorization header that a challenge asks for."""
        kind, _, rest = challenge.partition(" ")
        login = find_credentials(self.address.host)
        plain = self._root.startswith("http:") and not self.address.is_loopback
        if login is not None and plain:
            raise UsageError(
                f"{self.address.host} asks for a login, which is not sent without TLS",
                hint=f"leave {option('plain-http')} out, and let the registry have a certificate",
            )
        if kind.lower() == "basic" and login is not None:
            if self._authorization == login.header:
                raise refusal
            return login.header
        if kind.lower() != "bearer":
            raise refusal
        asked = {key.lower(): value for key, value in _CHALLENGE.findall(rest)}
        realm = asked.get("realm", "")
        if not _is_allowed(realm, self.address.is_loopback):
            raise refusal
        query = urlencode({k: v for k, v in asked.items() if k in ("service", "scope")})
        request = urllib.request.Request(f"{realm}{'&' if '?' in realm else '?'}{query}")
        if login is not None:
            request.add_unredirected_header("Authorization", login.header)
        with self._opener.open(request, timeout=_TIMEOUT) as answer:
            data = self.read(answer, _SMALL, "the token")
        try:
            found = decode_json(_Token, data, ignore_unknown=True)
        except ValueError:
            raise refusal from None
        return f"Bearer {found.token or found.access_token}"

    def _is_own(self, url: str) -> bool:
        return url.startswith(self._root + "/")

    def _refused(self, error: HTTPError, doing: str) -> Exception:
        if error.code >= 500 or error.code == _TOO_MANY:
            return BrokenOffError(f"it answers {error.code}")
        where = f"{self.address.host} refuses to {doing}"
        if error.code in (_UNAUTHORIZED, _FORBIDDEN):
            return RegistryError(
                f"{where}: it asks for a login that may do so",
                hint=f"log in with docker or podman, or set {USER} and {PASSWORD}",
            )
        if error.code == _NOT_FOUND:
            return MissingError(
                f"{self.address.host} can't {doing}: it has none",
                hint="check the name and the tag, and that the bundle was published",
            )
        return RegistryError(
            f"{where}: it answers {error.code}{_explained(error)}",
            hint="check that the address is a registry's, and that it takes OCI artifacts",
        )

    def _no_tls(self, reason: ssl.SSLError) -> RegistryError:
        why = getattr(reason, "verify_message", "") or reason.reason or "no TLS"
        return RegistryError(
            f"{self.address.host} can't be reached by TLS: {printable(str(why))}",
            hint="SSL_CERT_FILE names certificates to trust; a registry of your own network "
            f"without TLS needs {option('plain-http')}",
        )


class MissingError(RegistryError):
    """What was asked for is not in the registry."""


class Attempt:
    """One of several attempts; a connection that breaks off inside its block ends the block."""

    def __init__(self) -> None:
        self.broken: BrokenOffError | None = None
        self.is_repeated = False

    def __enter__(self) -> None:
        self.broken = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BrokenOffError):
            self.broken = error
        return self.broken is not None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https alone, unless plain HTTP is allowed."""

    def __init__(self, may_be_plain: bool) -> None:
        self._may_be_plain = may_be_plain

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if not _is_allowed(newurl, self._may_be_plain):
            raise HTTPError(req.full_url, code, "it leads to no https address", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_allowed(url: str, may_be_plain: bool) -> bool:
    parts = urlsplit(url)
    schemes = ("https", "http") if may_be_plain else ("https",)
    return parts.scheme in schemes and bool(parts.hostname)


def _explained(error: HTTPError) -> str:
    """Return the registry's own words about an error, if it has any."""
    try:
        faults = decode_json(_Faults, error.read(_SMALL), ignore_unknown=True).errors
    except (ValueError, OSError, HTTPException):
        return ""
    words = printable("; ".join(fault.message for fault in faults if fault.message))
    return f" ({words[:_LONGEST_MESSAGE]})" if words else ""
