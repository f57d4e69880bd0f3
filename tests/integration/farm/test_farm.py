"""The farm as a person runs it: a keeper, a real tracker, a device behind a real SSH server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from support.browser import WIDTHS, browser_tab
from support.building import write_model
from support.examples import first_of
from support.needs import needs
from support.rpc_lab import Lab, Process, eventually, rpc_lab
from support.stores import a_point, a_run, a_session, save_records, save_session

from edgekit.base.events import SILENT
from edgekit.base.unix_sockets import reachable
from edgekit.devices.keeper_client import farm_folder
from edgekit.devices.keeper_messages import DeviceStatus, FarmStatus, Lease
from edgekit.farm.keeper import Keeper
from edgekit.farm.plan import FarmPlan, Member
from edgekit.farm.web.prometheus import as_metrics
from edgekit.rpc.protocol import TrackerAddress
from edgekit.store.database import close_store, open_store
from edgekit.store.tuning import sessions

pytestmark = needs("sshd")

DEVICE = "desk"


@dataclass
class Farm:
    lab: Lab
    keeper: Process | None = None
    others: list[Process] = field(default_factory=list)

    def up(self) -> dict[str, Any]:
        words = self.words("up", "--port", str(self.lab.port), "--json", "-v")
        self.keeper = Process(words, self.lab.environment, self.lab.folder / "farm.log")
        return self.keeper.report

    def words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "edgekit", "farm", *arguments]

    def web(self, url: str, *options: str) -> Process:
        environment = {**self.lab.environment, "EDGEKIT_STORE": url}
        words = self.words("web", "--port", "0", "--json", *options)
        return Process(words, environment, self.lab.folder / "web.log")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*arguments),
            env=self.lab.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def status(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*(arguments or ("status",)), "--json")
        assert done.returncode == 0, done.stderr
        (device,) = json.loads(done.stdout)["devices"]
        return dict(device)

    def state(self) -> str:
        return str(self.status()["state"])

    def becomes(self, *states: str) -> None:
        eventually(lambda: self.state() in states)

    def python(self, script: str) -> Process:
        words = [sys.executable, "-c", script, str(self.lab.port)]
        process = Process(words, self.lab.environment, self.lab.folder / "client.log")
        self.others.append(process)
        return process

    def processes(self) -> list[int]:
        assert self.keeper is not None
        return [*self.lab.family(self.keeper.pid), *self.lab.agents()]

    def close(self) -> None:
        for process in (*self.others, self.keeper):
            if process is not None:
                process.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with rpc_lab(tmp_path_factory.mktemp("farm")) as lab:
        running = Farm(lab)
        try:
            yield running
        finally:
            running.close()


@pytest.fixture
def free(farm: Farm) -> Farm:
    """Up, with its device free."""
    if farm.keeper is None or not farm.keeper.is_running():
        farm.up()
    farm.status("resume", DEVICE)
    farm.becomes("free")
    return farm


CLIENT = """
import json, sys, time
from edgekit.farm.session import farm_session
with farm_session("local", "tuning", timeout=600) as session:
    print(json.dumps({"pid": 1}), flush=True)
    time.sleep(600)
"""
STOCK = """
import json, sys, time
from tvm import rpc
remote = rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request("local", session_timeout=600)
print(json.dumps({"pid": 1}), flush=True)
time.sleep(600)
"""


def test_without_a_farm_the_commands_say_how_to_get_one(farm: Farm) -> None:
    if farm.keeper is not None:
        farm.keeper.end()
    for command in (("status",), ("drain", DEVICE), ("down",)):
        done = farm.run(*command)
        assert done.returncode == 8
        assert "no farm is up" in done.stderr
        assert "edgekit farm up" in done.stderr


def test_a_device_comes_up_and_tvms_stock_client_gets_it(free: Farm) -> None:
    client = free.python(STOCK)
    free.becomes("busy")
    told = free.status()
    assert told["lease"] is None, "a stock client says nothing of itself"
    assert told["sessions"] >= 1
    client.end(signal.SIGKILL)
    free.becomes("free")


def test_a_session_of_edgekits_says_who_has_the_device_and_for_what(free: Farm) -> None:
    client = free.python(CLIENT)
    free.becomes("busy")
    eventually(lambda: free.status()["lease"] is not None)
    lease = free.status()["lease"]
    assert lease["purpose"] == "tuning"
    assert "@" in lease["owner"]
    assert lease["until"] > time.time()
    assert "tuning" in free.run("status").stdout
    client.end(signal.SIGKILL)
    free.becomes("free")


def test_a_drain_lets_the_session_end_and_gives_the_device_to_nobody(free: Farm) -> None:
    client = free.python(STOCK)
    free.becomes("busy")
    assert free.status("drain", DEVICE)["state"] == "draining"
    client.end(signal.SIGKILL)
    free.becomes("drained")
    eventually(lambda: free.lab.agents() == [])
    eventually(lambda: free.lab.free("local") == 0)
    free.status("resume", DEVICE)
    free.becomes("free")


def lose_agents(farm: Farm) -> None:
    """Wait until the farm has noticed it: its device may be back a moment later."""
    before = farm.status()["faults"]
    for agent in farm.lab.agents():
        os.kill(agent, signal.SIGKILL)
    eventually(lambda: farm.status()["faults"] > before)


def test_an_agent_that_is_killed_comes_back(free: Farm) -> None:
    (agent,) = free.lab.agents()
    lose_agents(free)
    keeper = free.keeper
    assert keeper is not None
    eventually(lambda: "killed" in keeper.errors())
    free.becomes("free")
    assert free.lab.agents() != [agent]


def test_repeated_faults_bring_quarantine_and_resume_ends_it(free: Farm) -> None:
    for _ in range(3):
        if free.state() != "quarantined":
            free.becomes("free")
            lose_agents(free)
    told = free.status()
    assert told["state"] == "quarantined"
    assert "3 times" in told["reason"]
    assert told["again_at"] > time.time()
    eventually(lambda: free.lab.agents() == [])
    free.status("resume", DEVICE)
    free.becomes("free")


def test_a_second_farm_and_a_wrong_name_are_refused(free: Farm) -> None:
    second = free.run("up", "--port", str(free.lab.port))
    assert second.returncode == 2
    assert "up already" in second.stderr
    wrong = free.run("drain", "dessk")
    assert wrong.returncode == 2
    assert "did you mean desk?" in wrong.stderr


@pytest.mark.parametrize("number", first_of(signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
def test_however_the_keeper_ends_nothing_stays(free: Farm, number: int) -> None:
    processes = free.processes()
    assert len(processes) >= 4, "keeper, tracker, worker, agent"
    assert free.keeper is not None
    free.keeper.end(number)
    eventually(lambda: free.lab.alive(processes) == [])
    assert free.run("status").returncode == 8
    free.up()
    free.becomes("free")


def test_down_ends_everything_before_it_returns(free: Farm) -> None:
    processes = free.processes()
    assert free.run("down").returncode == 0
    keeper = free.keeper
    assert keeper is not None
    eventually(lambda: not keeper.is_running())
    assert keeper.end() == 0
    eventually(lambda: free.lab.alive(processes) == [])


ODD_LINES = (
    b'{"do": "lease"}\n',
    b'{"do": "lease", "port": 1e999, "owner": "", "purpose": "", "seconds": 1}\n',
)


def test_nonsense_on_the_socket_does_not_hurt(free: Farm) -> None:
    path = Path(free.lab.environment["XDG_DATA_HOME"]) / "edgekit" / "farm" / "control.sock"
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    for line in (b"\n", b"{\n", b"[1]\n", b'{"do": "eat"}\n', *ODD_LINES, b"\xff\n", b""):
        with socket.socket(socket.AF_UNIX) as stream, reachable(path) as name:
            stream.settimeout(240)
            stream.connect(name)
            stream.sendall(line)
            stream.shutdown(socket.SHUT_WR)
            answer = stream.recv(1000)
            assert (b"error" in answer) == bool(line)
    assert free.state() == "free"


class Page:
    def __init__(self, process: Process) -> None:
        report: dict[str, str] = process.report
        self.errors = process.errors
        self.token = report["token"]
        self.port = int(report["metrics"].split(":")[2].split("/")[0])

    def get(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET"
    ) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def seen(self, path: str) -> str:
        status, text, _ = self.get(path, {"Authorization": f"Bearer {self.token}"})
        assert status == 200, text
        return text


@pytest.fixture
def page(free: Farm) -> Iterator[Page]:
    outbox = Path(free.lab.environment["XDG_DATA_HOME"]) / "edgekit" / "outbox"
    from edgekit.store.outbox import post

    post(a_run(1), outbox)
    post(a_run(2, 0.02, device="<script>alert(1)</script>"), outbox)
    post(a_run(3, 0.02), outbox)
    url = f"sqlite:///{outbox.parent / 's.db'}"
    store = open_store(url)
    save_session(store, a_session(model="<b>net</b>"))
    for number in range(20):
        save_records(store, [], a_point(number))
    close_store(store)
    process = free.web(url, "--dashboard", "http://127.0.0.1:8787/status?a='b'")
    yield Page(process)
    process.end(signal.SIGINT)


def test_the_page_shows_devices_and_results_to_whoever_has_the_token(page: Page) -> None:
    assert "desk" in page.seen("/")
    link = "<a href='http://127.0.0.1:8787/status?a=&#x27;b&#x27;'>The cluster"
    assert link in page.seen("/")
    assert "<span class='free'>free</span>" in page.seen("/devices")
    assert json.loads(page.seen("/status.json"))["devices"][0]["name"] == DEVICE
    assert 'edgekit_device_state{device="desk",board="local",state="free"} 1' in page.seen(
        "/metrics"
    )
    results = page.seen("/results")
    assert "net on kitchen" in results
    assert "<script>alert" not in results
    assert "&lt;script&gt;" in results
    for path in ("/tuning", "/sessions"):
        tuning = page.seen(path)
        assert "<span class='running'>running</span>" in tuning
        assert "152 of 64" in tuning
        assert "&lt;b&gt;net&lt;/b&gt;" in tuning
        assert "<b>" not in tuning
    (session,) = json.loads(page.seen("/sessions.json"))
    assert len(session["curve"]) == 20
    metrics = page.seen("/metrics")
    assert "edgekit_store_up 1\n" in metrics
    assert "edgekit_tuning_sessions 1\n" in metrics
    assert 'model="<b>net</b>",board="rpi4",measured_by="' in metrics
    assert '"} 152\n' in metrics
    compared = page.seen(f"/compare?before={a_run(1).id}&after={a_run(3).id}")
    assert "slower" in compared


def test_nobody_else_sees_anything(page: Page) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Cookie": "edgekit-farm=wrong"},
        {"Cookie": ";;;="},
    ):
        status, text, _ = page.get("/", headers)
        assert status == 403
        assert "desk" not in text
    status, _, _ = page.get(
        "/", {"Host": "evil.example:80", "Authorization": f"Bearer {page.token}"}
    )
    assert status == 421
    status, _, headers = page.get(f"/?token={page.token}")
    assert status == 303
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=Strict" in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].split(";")[0]
    assert page.get("/", {"Cookie": cookie})[0] == 200
    assert page.get("/nothing", {"Cookie": cookie})[0] == 404
    assert page.get("HTTP://[::1/", {"Cookie": cookie})[0] == 400
    assert page.get("/compare?before=zz&after=zz", {"Cookie": cookie})[0] == 503


HOSTILE = {
    "too large a header": b"GET / HTTP/1.1\r\nHost: localhost:1\r\n%s\r\nx: " + b"y" * (1 << 17),
    "a body": b"GET / HTTP/1.1\r\nHost: localhost:1\r\n%s\r\nContent-Length: 1\r\n\r\nx",
    "an endless body": b"GET / HTTP/1.1\r\nHost: localhost:1\r\n%s\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    "two ideas of its end": b"GET / HTTP/1.1\r\nHost: localhost:1\r\n%s\r\nContent-Length: 0\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n%s\r\n\r\n",
    "no host, as of old": b"GET / HTTP/1.0\r\n%s\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost:1\r\nHost: evil:1\r\n%s\r\n\r\n",
    "a character of control": b"GET / HTTP/1.1\r\nHost: localhost:1\r\nCookie: \x7f\r\n\r\n",
    "another method": b"POST / HTTP/1.1\r\nHost: localhost:1\r\n%s\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


def test_hostile_requests_are_refused_and_the_page_goes_on(page: Page) -> None:
    bearer = f"Authorization: Bearer {page.token}".encode()
    for what, request in HOSTILE.items():
        with socket.create_connection(("127.0.0.1", page.port), timeout=240) as client:
            answer = b""
            with suppress(ConnectionError):  # it may hang up before it has read everything
                client.sendall(request.replace(b"%s", bearer))
                while block := client.recv(1 << 16):
                    answer += block
        assert not answer or answer.split()[1] in (b"400", b"403", b"405", b"421"), what
        assert b"desk" not in answer, what
    assert page.get(f"/tuning?token={page.token}x")[0] == 403
    assert "desk" in page.seen("/")
    assert page.errors() == "", "no traceback, and no address that may hold the token"


BROWSER = which("chromium") or which("google-chrome")


def in_browser(page: Page, folder: Path, path: str, *options: str) -> str:
    """The page as a browser has it after some seconds; the address is the one that was printed."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            f"--user-data-dir={tempfile.mkdtemp(dir=folder)}",
            "--virtual-time-budget=6000",
            *options,
            "--dump-dom",
            f"http://127.0.0.1:{page.port}{path}",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs("chromium")
def test_a_browser_shows_the_farm_and_keeps_it_up_to_date(page: Page, tmp_path: Path) -> None:
    seen = in_browser(page, tmp_path, f"/?token={page.token}")
    assert DEVICE in seen
    assert '<span class="free">free</span>' in seen or "<span class='free'>free</span>" in seen
    assert ">live</span>" in seen, "the script ran, and got the table again"
    results = in_browser(page, tmp_path, f"/results?token={page.token}")
    assert "net on kitchen" in results
    assert "<svg" in results
    tuning = in_browser(page, tmp_path, f"/tuning?token={page.token}")
    assert "152 of 64" in tuning
    assert "<svg" in tuning
    assert ">live</span>" in tuning, "the script ran, and got the sessions again"


@needs("chromium")
def test_the_pages_fit_a_phone_open_runs_and_sessions_and_have_buttons(page: Page) -> None:
    site = f"http://127.0.0.1:{page.port}"
    with browser_tab() as tab:
        tab.show(f"{site}/?token={page.token}", WIDTHS["phone"], dark=True)
        for path, pictures in (
            *(("/", 0), ("/results", 2), ("/tuning", 1)),
            *((f"/session?id={a_session().id}", 1), (f"/run?id={a_run(3).id}", 3)),
        ):
            tab.events.clear()
            tab.show(f"{site}{path}", WIDTHS["phone"], dark=True)
            if pictures:
                tab.until("document.documentElement.dataset.drawn")
                drawn = tab.run("document.querySelectorAll('.chart svg').length")
                assert drawn >= pictures, path
            assert tab.run("document.documentElement.scrollWidth") <= WIDTHS["phone"], path
            assert tab.violations() == [], path
            assert [e for e in tab.events if e["method"] == "Runtime.exceptionThrown"] == []
            assert [e for e in tab.events if e["method"] == "Log.entryAdded"] == [], path
        tab.show(f"{site}/", WIDTHS["desktop"])
        tab.run("document.querySelector('[data-post^=\"/drain\"]').click()")
        tab.until("document.querySelector('.drained, .draining')")
        assert "gets no new work" in tab.run("document.getElementById('done').textContent")
        tab.run("document.querySelector('[data-post^=\"/resume\"]').click()")
        tab.until("document.querySelector('.free, .starting')")
        tab.show(f"{site}/tuning", WIDTHS["desktop"])
        tab.run("document.querySelector('td a').click()")
        tab.until("location.pathname === '/session' && document.querySelector('.chart svg')")


def test_buttons_work_with_the_token_and_from_the_page_alone(page: Page) -> None:
    bearer = {"Authorization": f"Bearer {page.token}"}

    def state() -> dict[str, Any]:
        (device,) = json.loads(page.seen("/status.json"))["devices"]
        return dict(device)

    drain = f"/drain?device={DEVICE}"
    assert page.get(drain, {}, "POST")[0] == 403
    assert page.get(drain, {**bearer, "Origin": "http://evil.example"}, "POST")[0] == 403
    assert page.get(drain, bearer)[0] == 404, "a link does nothing"
    assert page.get("/results", bearer, "POST")[0] == 405
    assert state()["state"] == "free"
    assert "no device" in page.get("/drain?device=nothing", bearer, "POST")[1]
    status, text, _ = page.get(drain, {**bearer, "Origin": f"http://127.0.0.1:{page.port}"}, "POST")
    assert (status, state()["state"] in ("draining", "drained")) == (200, True), text
    page.get(f"/resume?device={DEVICE}", bearer, "POST")
    assert state()["state"] not in ("draining", "drained")
    page.get(f"/reserve?device={DEVICE}", bearer, "POST")
    assert "by the farm's page" in str(state()["reservation"])
    page.get(f"/release?device={DEVICE}", bearer, "POST")
    assert state()["reservation"] is None


def test_a_token_outlives_the_page_until_another_one_is_asked_for(free: Farm) -> None:
    file = Path(free.lab.environment["XDG_DATA_HOME"]) / "edgekit" / "farm" / "web-token"
    tokens = []
    for options in ((), (), ("--new-token",), ()):
        process = free.web("off", *options)
        tokens.append(process.report["token"])
        assert file.stat().st_mode & 0o777 == 0o600
        process.end(signal.SIGINT)
    first, again, new, after = tokens
    assert first == again != new == after


def test_a_dashboard_that_is_no_page_is_refused(free: Farm) -> None:
    done = free.run("web", "--dashboard", "javascript:alert(1)")
    assert done.returncode == 2
    assert "is no address of a page" in done.stderr


@needs("chromium")
def test_a_browser_without_the_token_sees_nothing(page: Page, tmp_path: Path) -> None:
    assert DEVICE not in in_browser(page, tmp_path, "/")


def test_install_writes_units_that_systemd_takes(free: Farm, tmp_path: Path) -> None:
    done = free.run("install", "--json")
    assert done.returncode == 0, done.stderr
    units = [Path(path) for path in json.loads(done.stdout)["units"]]
    assert [path.name for path in units] == ["edgekit-farm.service", "edgekit-farm-web.service"]
    for path in units:
        (start,) = [line for line in path.read_text().splitlines() if line.startswith("ExecStart=")]
        assert '"-I"' in start, "the folder of the project holds no modules of edgekit's"
        assert '"-m"' not in start
        checked = subprocess.run(
            ["systemd-analyze", "--user", "verify", str(path)],
            capture_output=True,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            check=False,
        )
        assert path.name not in checked.stderr, checked.stderr


def test_metrics_escape_names_and_leave_out_what_is_not_known() -> None:
    device = DeviceStatus(
        name='a"b\\',
        board="rpi4",
        key="rpi4",
        state="busy",
        since=0,
        reason="",
        again_at=None,
        port=1,
        sessions=1_234_567,
        faults=0,
        lease=Lease("me", "x", 1),
        load=0.5,
        temperature=None,
    )
    text = as_metrics(FarmStatus(1, 0, 10, "127.0.0.1:9190", (device,)))
    assert 'device="a\\"b\\\\"' in text
    assert "edgekit_device_load{" in text
    assert "} 1234567\n" in text
    assert "edgekit_device_temperature_celsius{" not in text


def test_a_worker_that_was_just_ended_is_not_heard_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain and the worker's last words may come in the same moment."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    farm_folder().mkdir(parents=True)
    plan = FarmPlan((Member(DEVICE, "rpi4", "rpi4"),))
    keeper = Keeper(plan, TrackerAddress("127.0.0.1", 1), SILENT)
    try:
        device = keeper._devices[DEVICE]
        keeper._start(device)
        worker = device.worker
        assert worker is not None
        keeper._end(device)
        keeper._hear(device, worker)
        assert device.health.state == "starting"
    finally:
        keeper.close()


@pytest.mark.slow
def test_a_search_takes_what_the_farm_lends_and_says_what_for(free: Farm, tmp_path: Path) -> None:
    model = write_model(tmp_path / "small.onnx")
    url = f"sqlite:///{tmp_path / 's.db'}"
    words = ["tune", str(model), "--board", "local", "--trials", "100000", "--again"]
    with subprocess.Popen(
        free.lab.command(*words),
        env={**free.lab.environment, "EDGEKIT_STORE": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as search:
        leases: list[str] = []

        def is_leased() -> bool:
            assert search.poll() is None, "it has much to do, and goes on"
            lease = free.status()["lease"]
            leases.extend([] if lease is None else [lease["purpose"]])
            return bool(leases)

        eventually(is_leased)
        search.send_signal(signal.SIGINT)
        _, errors = search.communicate(timeout=300)

    assert search.returncode == 130, errors
    assert leases == ["tuning small"]
    free.becomes("free")
    store = open_store(url)
    (session,) = sessions(store)
    close_store(store)
    assert session.devices == (DEVICE,)
    assert session.state == "interrupted"
