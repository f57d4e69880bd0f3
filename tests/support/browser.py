"""Chromium, driven over its DevTools protocol: keys, touch, pictures, and axe's rules."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

AXE = Path(__file__).parent / "axe" / "axe.min.js"
WIDTHS = {"phone": 360, "tablet": 800, "desktop": 1400}
_SECONDS = 120.0


class Tab:
    """A page of a browser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: WebSocketClientConnection):
        self._loop = loop
        self._connection = connection
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what the page reports goes to `events`."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}

        async def exchange() -> dict[str, Any]:
            await self._connection.write_message(json.dumps(message))
            while True:
                text = await asyncio.wait_for(self._connection.read_message(), _SECONDS)
                assert text is not None, "the browser ended"
                answer: dict[str, Any] = json.loads(text)
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    return dict(answer["result"])
                self.events.append(answer)

        return self._loop.run_until_complete(exchange())

    def run(self, script: str) -> Any:
        """Return what an expression gives; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def show(self, address: str, width: int, *, dark: bool = False, touch: bool = False) -> None:
        """Open an address at a width, in a theme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": touch}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def until(self, condition: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never: {condition}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 else {}
            codes = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}
            code = codes.get(key, 0)
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send a touch: touchStart, touchMove, or touchEnd without points."""
        places = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.send("Input.dispatchTouchEvent", type=kind, touchPoints=places)

    def picture(self, path: Path) -> Path:
        """Write a picture of the whole page."""
        height = self.run("document.documentElement.scrollHeight")
        width = self.run("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def violations(self) -> list[str]:
        """Return what axe finds against WCAG 2.2 AA."""
        self.run(f"{AXE.read_text(encoding='utf-8')}; 1")
        rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = self.run(
            f"axe.run(document, {{runOnly: {json.dumps(rules)}}}).then(found => "
            "found.violations.flatMap(rule => rule.nodes.map(node => "
            "`${rule.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))"
        )
        return list(found)


@contextmanager
def browser_tab() -> Iterator[Tab]:
    """Start Chromium with one empty page."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(
                    program,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                ),
                *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        loop = asyncio.new_event_loop()
        try:
            connection = loop.run_until_complete(_connected(Path(profile) / "DevToolsActivePort"))
            tab = Tab(loop, connection)
            for part in ("Page", "Runtime", "Network", "Log"):
                tab.send(f"{part}.enable")
            yield tab
            connection.close()
        finally:
            process.terminate()
            process.wait(timeout=60)
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


async def _connected(file: Path) -> WebSocketClientConnection:
    from tornado.httpclient import AsyncHTTPClient

    deadline = time.monotonic() + _SECONDS
    while not (file.exists() and file.read_text().count("\n") >= 1):
        assert time.monotonic() < deadline, "the browser does not start"
        await asyncio.sleep(0.05)
    port = int(file.read_text().split()[0])
    answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
    pages = [one for one in json.loads(answer.body) if one["type"] == "page"]
    request = HTTPRequest(pages[0]["webSocketDebuggerUrl"])
    return await websocket_connect(request, max_message_size=256 << 20)
