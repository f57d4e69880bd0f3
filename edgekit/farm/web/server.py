"""The farm's web pages and metrics, served on loopback to this user with the token."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.log import app_log
from tornado.web import Application, HTTPError, RequestHandler

from edgekit.base.errors import EdgekitError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import replace_file, storage_errors
from edgekit.base.options import option
from edgekit.base.own_listener import OwnListener, listen_on_loopback, port_error
from edgekit.base.wording import duration
from edgekit.devices.keeper_client import farm_folder
from edgekit.farm.control import drain, farm_status, release, reserve, resume
from edgekit.farm.web import markup, page, tuning_page
from edgekit.farm.web.prometheus import CONTENT_TYPE, as_metrics, tuning_metrics
from edgekit.pictures.assets import scripts, styles
from edgekit.pictures.history import History, grouped
from edgekit.rpc.protocol import LOOPBACK
from edgekit.store.address import is_off
from edgekit.store.tuning_results import SessionCurve, running_now, session_curves, show_session

Query = dict[str, str]

_COOKIE = "edgekit-farm"
_HTML = "text/html; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_RESERVED_SECONDS = 3600.0
_JSON = "application/json"
_PAGES = ("/", "/tuning", "/results")
_RUNS_SHOWN = 200
_SESSIONS_SHOWN = 10
_LONGEST_SECONDS = 20.0
"""The time limit for a client to send its request, and to read the answer."""
_LINK = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(/[!-~]*)?")
_LARGEST_REQUEST = 1 << 16
_HEADERS = {
    "Server": "edgekit",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Sources:
    """What the pages show beside the farm."""

    store: str | None
    dashboard: str = ""
    """The URL of the page of a cluster that compiles."""


@dataclass(frozen=True)
class WebServing:
    url: str
    """The address with the token: opening it once is enough for a browser."""
    metrics: str
    token: str


def serve_web(
    port: int,
    sources: Sources,
    *,
    new_token: bool = False,
    started: Callable[[WebServing], None],
    events: Events = SILENT,
) -> None:
    """Serve until interrupted."""
    if sources.dashboard and not _LINK.fullmatch(sources.dashboard):
        raise UsageError(
            f"{option('dashboard', sources.dashboard[:200])} is no address of a page",
            hint="write the whole of it: http://127.0.0.1:8787/status",
        )
    token = web_token(new=new_token)
    try:
        listener = listen_on_loopback(port, events.warn)
    except OSError as error:
        raise port_error(port, error) from error
    with listener:
        place = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        started(WebServing(f"{place}/?token={token}", f"{place}/metrics", token))
        asyncio.run(_serve(listener, token, sources))


async def _serve(listener: OwnListener, token: str, sources: Sources) -> None:
    listener.setblocking(False)
    every_path = (r".*", _Handler, {"token": token, "sources": sources})
    server = HTTPServer(
        # Requests may hold the token: none is logged.
        Application([every_path], log_function=lambda handler: None),
        no_keep_alive=True,
        max_header_size=_LARGEST_REQUEST,
        max_body_size=0,
        idle_connection_timeout=_LONGEST_SECONDS,
    )
    server.add_socket(listener)
    await asyncio.Event().wait()


class _Refusal(HTTPError):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(status)
        self.message = message


class _Handler(RequestHandler):
    SUPPORTED_METHODS = ("GET", "POST")

    def initialize(self, token: str, sources: Sources) -> None:
        self._token = token
        self._sources = sources

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def compute_etag(self) -> None:
        """Send none: answers are not cached."""

    async def get(self) -> None:
        path, query = self._admitted()
        if "token" in query and path in _PAGES:
            # The token leaves the address bar and the history.
            self.set_cookie(_COOKIE, self._token, httponly=True, samesite="Strict")
            self.redirect(path, status=HTTPStatus.SEE_OTHER)
            return
        try:
            kind, text = await _in_thread(lambda: _CONTENT[path](query, self._sources))
        except KeyError as error:
            raise _Refusal(HTTPStatus.NOT_FOUND, "There is no such page.") from error
        except EdgekitError as error:
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}.") from error
        self.set_header("Content-Type", kind)
        self.write(text)

    async def post(self) -> None:
        """Do what a button asks for, and say in a sentence what happened."""
        path, query = self._admitted()
        origin = self.request.headers.get("Origin")
        if origin is not None and origin != f"http://{self.request.headers['Host']}":
            raise _Refusal(HTTPStatus.FORBIDDEN, "Another site asks for this.")
        if path not in _ACTIONS:
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "This page is only shown.")
        device = query.get("device", "")
        try:
            text = await _in_thread(lambda: ("", _ACTIONS[path](device)))
        except EdgekitError as error:
            text = "", f"{error.message}."
        self.set_header("Content-Type", _TEXT)
        self.write(text[1])

    def _admitted(self) -> tuple[str, Query]:
        """Return the path and the query of a request with the token."""
        try:
            parts = urlsplit(self.request.uri or "")
        except ValueError as error:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "This is no address.") from error
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        # Another site's DNS may lead its own names to loopback.
        if self.request.headers.get("Host", "").rpartition(":")[0] not in (LOOPBACK, "localhost"):
            raise _Refusal(HTTPStatus.MISDIRECTED_REQUEST, "This is not that host.")
        if not hmac.compare_digest(self._given_token(query).encode(), self._token.encode()):
            raise _Refusal(HTTPStatus.FORBIDDEN, "Open the address that edgekit farm web printed.")
        return parts.path, query

    def _given_token(self, query: Query) -> str:
        bearer = self.request.headers.get("Authorization", "")
        if bearer.startswith("Bearer "):
            return bearer.removeprefix("Bearer ")
        return query.get("token") or self.get_cookie(_COOKIE) or ""

    def on_finish(self) -> None:
        """Close the connection of a client that does not read its answer."""
        connection = self.request.connection
        if isinstance(connection, HTTP1Connection):
            asyncio.get_running_loop().call_later(_LONGEST_SECONDS, connection.close)

    def write_error(self, status_code: int, **details: Any) -> None:
        error = details["exc_info"][1]
        is_ours = isinstance(error, _Refusal)
        self.write(page.error_page(error.message if is_ours else HTTPStatus(status_code).phrase))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log bugs only, and without the address, which may hold the token."""
        if not isinstance(value, HTTPError):
            app_log.error("the farm's page failed", exc_info=value)


def _in_thread(work: Callable[[], tuple[str, str]]) -> asyncio.Future[tuple[str, str]]:
    """Run `work`, which may wait for the farm or the store, without holding up Ctrl-C."""
    done: Future[tuple[str, str]] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the request
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(done)


def _metrics(query: Query, sources: Sources) -> tuple[str, str]:
    text = as_metrics(farm_status())
    if is_off(sources.store):
        return CONTENT_TYPE, text
    try:
        running = running_now(sources.store)
    except EdgekitError:
        running = None  # the metrics say so; the devices are shown
    return CONTENT_TYPE, text + tuning_metrics(running)


def _comparison(query: Query, sources: Sources) -> tuple[str, str]:
    from edgekit.store.results import compare_results

    comparison = compare_results(query["before"], query["after"], sources.store)
    return _HTML, page.comparison_page(comparison)


def _run(query: Query, sources: Sources) -> tuple[str, str]:
    from edgekit.store.kept import kept_of_run

    return _HTML, page.run_page(*kept_of_run(query["id"], sources.store))


def _session(query: Query, sources: Sources) -> tuple[str, str]:
    return _HTML, tuning_page.session_page(show_session(query["id"], sources.store))


def _reserve(device: str) -> str:
    reserve(device, _RESERVED_SECONDS, "by the farm's page")
    return f"{device} is reserved for {duration(_RESERVED_SECONDS)}."


def _drain(device: str) -> str:
    drain(device)
    return f"{device} gets no new work; a running session ends first."


def _resume(device: str) -> str:
    resume(device)
    return f"{device} is handed out again."


def _release(device: str) -> str:
    release(device)
    return f"{device} is not reserved any more."


_ACTIONS: dict[str, Callable[[str], str]] = {
    "/drain": _drain,
    "/resume": _resume,
    "/reserve": _reserve,
    "/release": _release,
}
"""What the buttons do with a device, and the sentence that says so."""
_CONTENT: dict[str, Callable[[Query, Sources], tuple[str, str]]] = {
    "/": lambda query, sources: (_HTML, page.farm_page(farm_status(), sources.dashboard)),
    "/devices": lambda query, sources: (_HTML, page.devices_table(farm_status())),
    "/status.json": lambda query, sources: (_JSON, json.dumps(asdict(farm_status()))),
    "/metrics": _metrics,
    "/tuning": lambda query, sources: (_HTML, tuning_page.tuning_page(_curves(sources.store))),
    "/sessions": lambda query, sources: (_HTML, tuning_page.sessions_part(_curves(sources.store))),
    "/sessions.json": lambda query, sources: (
        _JSON,
        json.dumps([asdict(c) for c in _curves(sources.store)]),
    ),
    "/results": lambda query, sources: (_HTML, page.results_page(_histories(sources.store))),
    "/compare": _comparison,
    "/run": _run,
    "/session": _session,
    "/style.css": lambda query, sources: ("text/css; charset=utf-8", styles() + markup.STYLE),
    "/pictures.js": lambda query, sources: (_SCRIPT, "\n".join(scripts())),
    "/script.js": lambda query, sources: (_SCRIPT, markup.SCRIPT),
}
"""The functions that return the media type and text of each path; KeyError if the query lacks a
parameter."""


def _curves(store: str | None) -> tuple[SessionCurve, ...]:
    return session_curves(_SESSIONS_SHOWN, store)


def _histories(store: str | None) -> tuple[History, ...]:
    from edgekit.store.bench_runs import RunFilter
    from edgekit.store.results import list_results

    return grouped(list_results(RunFilter(limit=_RUNS_SHOWN), store).runs)


_FORM = re.compile(r"[A-Za-z0-9_-]{32}\n?")
_LONGEST = 100


def token_file() -> Path:
    return farm_folder() / "web-token"


def web_token(*, new: bool = False) -> str:
    """Return the token. Make one if it is missing or others could have read it, or if `new`."""
    path = token_file()
    token = None if new else _read(path)
    if token is not None:
        return token
    token = secrets.token_urlsafe(24)
    with storage_errors("keep the page's token", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as stream:
            os.fchmod(stream.fileno(), 0o600)
            stream.write(f"{token}\n".encode())
    return token


def _read(path: Path) -> str | None:
    with storage_errors("read the page's token", path):
        try:
            with path.open("rb") as stream:
                is_ours = not os.fstat(stream.fileno()).st_mode & 0o077
                text = stream.read(_LONGEST).decode("ascii", "replace")
        except FileNotFoundError:
            return None
    return text.strip() if is_ours and _FORM.fullmatch(text) else None
