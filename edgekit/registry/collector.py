"""Takes boards' reports by HTTP. It holds no key: others decide what follows from reports."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.log import app_log
from tornado.web import Application, HTTPError, RequestHandler

from edgekit.base.decode import decode_json
from edgekit.base.errors import BadInputError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors
from edgekit.base.options import option
from edgekit.base.own_listener import port_error
from edgekit.registry.reports import BoardReport, FullError, ReportWriter

PATH = "/reports"
_LARGEST_REPORT = 1 << 14
_LONGEST_SECONDS = 20.0
_BACKLOG = 1024
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 1000


@dataclass(frozen=True)
class Collecting:
    """A collector that is up."""

    url: str
    file: Path
    asks_for_token: bool


def collect_reports(
    file: Path,
    *,
    host: str,
    port: int,
    token: Path | None,
    started: Callable[[Collecting], None],
    events: Events = SILENT,
) -> None:
    """Keep boards' reports in a file, until the process is interrupted.

    Without a token, which boards send as a bearer, only this machine's programs may report.
    """
    word = None if token is None else _read_token(token)
    if word is None and not _is_loopback(host):
        raise UsageError(
            f"anyone who reaches {host} could report for any board",
            hint=f"write a long random word into a file and name it: {option('token')} FILE",
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise port_error(port, error) from error
    with listener, closing(ReportWriter(file)) as writer:
        bound = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        started(Collecting(f"http://{shown}:{bound}{PATH}", file, word is not None))
        asyncio.run(_serve(listener, writer, word, events))


async def _serve(
    listener: socket.socket, writer: ReportWriter, token: str | None, events: Events
) -> None:
    listener.setblocking(False)
    given = {"writer": writer, "token": token, "events": events}
    server = HTTPServer(
        Application([(PATH, _Handler, given)], log_function=lambda handler: None),
        max_header_size=_LARGEST_REPORT,
        max_body_size=_LARGEST_REPORT,
        body_timeout=_LONGEST_SECONDS,
        idle_connection_timeout=_LONGEST_SECONDS,
    )
    server.add_socket(listener)
    await asyncio.Event().wait()


class _Handler(RequestHandler):
    SUPPORTED_METHODS = ("POST",)

    def initialize(self, writer: ReportWriter, token: str | None, events: Events) -> None:
        self._writer, self._token, self._events = writer, token, events

    def set_default_headers(self) -> None:
        self.set_header("Server", "edgekit")

    def post(self) -> None:
        given = self.request.headers.get("Authorization", "")
        if self._token is not None and not hmac.compare_digest(
            given.encode(), f"Bearer {self._token}".encode()
        ):
            raise HTTPError(HTTPStatus.UNAUTHORIZED)
        if self.request.headers.get("Content-Type") != "application/json":
            # A page in a browser on this machine can send other types without asking.
            raise HTTPError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            self._writer.keep(decode_json(BoardReport, self.request.body))
        except ValueError as error:
            self.set_status(HTTPStatus.BAD_REQUEST)
            self.finish(f"This is no report: {error}.\n")
            return
        except FullError as error:
            raise HTTPError(HTTPStatus.INSUFFICIENT_STORAGE) from error
        except sqlite3.Error as error:
            self._events.warn(f"a report could not be kept: {error}")
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE) from error
        self.set_status(HTTPStatus.NO_CONTENT)

    def write_error(self, status_code: int, **details: Any) -> None:
        self.finish(f"{HTTPStatus(status_code).phrase}\n")

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log bugs only."""
        if not isinstance(value, HTTPError):
            app_log.error("the collector failed", exc_info=value)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_token(file: Path) -> str:
    with storage_errors("read the token", file), file.open("rb") as stream:
        word = stream.read(_LONGEST_TOKEN + 1).decode("ascii", "replace").strip()
    if not _SHORTEST_TOKEN <= len(word) <= _LONGEST_TOKEN or not word.isprintable() or " " in word:
        raise BadInputError(
            f"{file} holds no token: one word of {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} characters",
            hint=f"openssl rand -hex 32 >{file}",
        )
    return word
