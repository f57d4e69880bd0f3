"""The farm's page and metrics, on loopback, for this user who has the token."""

from __future__ import annotations

import hmac
import json
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.base.own_listener import Door
from edgekit.farm.control import farm_status
from edgekit.farm.web import markup, page, tuning_page
from edgekit.farm.web.page import History
from edgekit.farm.web.prometheus import CONTENT_TYPE, as_metrics, tuning_metrics
from edgekit.farm.web.token import web_token
from edgekit.rpc.protocol import LOOPBACK
from edgekit.store.address import is_off

if TYPE_CHECKING:
    from edgekit.store.tuning_results import SessionCurve

_COOKIE = "edgekit-farm"
_HTML = "text/html; charset=utf-8"
_PAGES = ("/", "/tuning", "/results")
_RUNS_SHOWN = 200
_SESSIONS_SHOWN = 10
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class WebServing:
    url: str
    """With the token: opening it once is enough for a browser."""
    metrics: str
    token: str


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler], door: Door) -> None:
        self._door = door
        super().__init__((LOOPBACK, port), handler)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Refuse other users before their request is read."""
        assert isinstance(request, socket.socket)
        return self._door.admits(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle is nothing to tell; bugs are."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def serve_web(
    port: int,
    store: str | None,
    *,
    new_token: bool = False,
    started: Callable[[WebServing], None],
    events: Events = SILENT,
) -> None:
    """Until interrupted."""
    token = web_token(new=new_token)
    try:
        server = _Server(port, _handler(token, store), Door(events.warn))
    except OSError as error:
        raise DeviceError(
            f"port {port} cannot be used: {(error.strerror or str(error)).lower()}",
            hint="choose another one: edgekit farm web --port PORT",
        ) from error
    with server:
        place = f"http://{LOOPBACK}:{server.server_address[1]}"
        started(WebServing(f"{place}/?token={token}", f"{place}/metrics", token))
        server.serve_forever()


def _handler(token: str, store: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 20
        server_version = "edgekit"
        sys_version = ""

        def do_GET(self) -> None:
            try:
                parts = urlsplit(self.path)
            except ValueError:
                self._send(HTTPStatus.BAD_REQUEST, "text/plain", "no address\n")
                return
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            if not self._is_for_us():
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "not this host\n")
            elif not self._is_allowed(query):
                self._send(
                    HTTPStatus.FORBIDDEN,
                    _HTML,
                    page.error_page("Open the address that edgekit farm web printed."),
                )
            elif "token" in query and parts.path in _PAGES:
                # The token leaves the address bar and the history.
                self._send(
                    HTTPStatus.SEE_OTHER,
                    "text/plain",
                    "",
                    {
                        "Location": parts.path,
                        "Set-Cookie": f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/",
                    },
                )
            else:
                self._answer(parts.path, query)

        def _answer(self, path: str, query: dict[str, str]) -> None:
            try:
                kind, text = _content(path, query, store)
            except KeyError:
                self._send(HTTPStatus.NOT_FOUND, _HTML, page.error_page("There is no such page."))
            except EdgekitError as error:
                self._send(
                    HTTPStatus.SERVICE_UNAVAILABLE, _HTML, page.error_page(f"{error.message}.")
                )
            else:
                self._send(HTTPStatus.OK, kind, text)

        def _is_for_us(self) -> bool:
            """A name that a stranger's DNS leads here is refused."""
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            return host in (LOOPBACK, "localhost")

        def _is_allowed(self, query: dict[str, str]) -> bool:
            given = query.get("token", "")
            bearer = self.headers.get("Authorization") or ""
            if bearer.startswith("Bearer "):
                given = bearer.removeprefix("Bearer ")
            if not given:
                try:
                    morsel = SimpleCookie(self.headers.get("Cookie") or "").get(_COOKIE)
                except CookieError:
                    morsel = None
                given = morsel.value if morsel is not None else ""
            return hmac.compare_digest(given.encode(), token.encode())

        def _send(
            self, status: HTTPStatus, kind: str, text: str, headers: dict[str, str] | None = None
        ) -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in {**_SECURITY, **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests may hold the token, and nobody reads them."""

    return Handler


def _content(path: str, query: dict[str, str], store: str | None) -> tuple[str, str]:
    """KeyError for what there is not."""
    if path == "/":
        return _HTML, page.farm_page(farm_status())
    if path == "/devices":
        return _HTML, page.devices_table(farm_status())
    if path == "/status.json":
        return "application/json", json.dumps(asdict(farm_status()))
    if path == "/metrics":
        return CONTENT_TYPE, as_metrics(farm_status()) + _tuning_metrics(store)
    if path == "/tuning":
        return _HTML, tuning_page.tuning_page(_curves(store))
    if path == "/sessions":
        return _HTML, tuning_page.sessions_part(_curves(store))
    if path == "/sessions.json":
        return "application/json", json.dumps([asdict(curve) for curve in _curves(store)])
    if path == "/results":
        return _HTML, page.results_page(_histories(store))
    if path == "/compare":
        from edgekit.store.results import compare_results

        comparison = compare_results(query["before"], query["after"], store)
        return _HTML, page.comparison_page(comparison)
    if path == "/style.css":
        return "text/css; charset=utf-8", markup.STYLE
    if path == "/script.js":
        return "text/javascript; charset=utf-8", markup.SCRIPT
    raise KeyError(path)


def _curves(store: str | None) -> tuple[SessionCurve, ...]:
    from edgekit.store.tuning_results import session_curves

    return session_curves(_SESSIONS_SHOWN, store)


def _tuning_metrics(store: str | None) -> str:
    """A store that can't be used takes no device out of sight."""
    from edgekit.store.tuning_results import running_now

    if is_off(store):
        return ""
    try:
        return tuning_metrics(running_now(store))
    except EdgekitError:
        return tuning_metrics(None)


def _histories(store: str | None) -> tuple[History, ...]:
    from edgekit.store.bench_runs import Wanted
    from edgekit.store.results import list_results

    grouped: dict[tuple[str, str, str], list[object]] = {}
    runs = list_results(Wanted(limit=_RUNS_SHOWN), store).runs
    for run in reversed(runs):
        grouped.setdefault((run.build.model, run.build.board, run.device), []).append(run)
    return tuple(History(*key, tuple(found)) for key, found in sorted(grouped.items()))  # type: ignore[arg-type]
