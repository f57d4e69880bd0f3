"""A tracker and device servers as a person runs them, with a device behind a real SSH server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.base.errors import DeviceError
from edgekit.rpc.protocol import KeyStatus, TrackerAddress, TrackerClient
from support.ports import free_port
from support.ssh_server import SshServer, ssh_server

_PATIENCE_SECONDS = 240.0


def environment_in(folder: Path) -> dict[str, str]:
    """Another user's, as far as edgekit can tell."""
    return {
        **os.environ,
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
        "NO_COLOR": "1",
    }


def find_status(address: TrackerAddress, key: str) -> KeyStatus | None:
    """None where nothing is registered, or the tracker is not there."""
    try:
        with TrackerClient(address) as client:
            found = [status for status in client.status() if status.key == key]
    except DeviceError:
        return None
    return found[0] if found and found[0].devices else None


def free_devices(address: TrackerAddress, key: str) -> int:
    status = find_status(address, key)
    return status.free if status else 0


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


class Process:
    """edgekit in a process that stays; its JSON document says that it is up."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                arguments,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.rstrip() == "}" or (line.rstrip().endswith("}") and line.startswith("{")):
                break
        text = "".join(lines)
        assert text, self.errors()
        self.report: dict[str, Any] = json.loads(text)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def errors(self) -> str:
        return self._log.read_text(errors="replace")  # it may end within a character

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.is_running():
            self._process.send_signal(number)
        code = self._process.wait(timeout=_PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@dataclass
class Lab:
    folder: Path
    ssh: SshServer
    environment: dict[str, str]
    port: int
    servers: dict[str, Process] = field(default_factory=dict)
    _tracker: Process | None = None

    @property
    def address(self) -> TrackerAddress:
        return TrackerAddress("127.0.0.1", self.port)

    @property
    def tracker(self) -> Process:
        assert self._tracker is not None
        return self._tracker

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "edgekit", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("rpc", *arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start_tracker(self) -> None:
        if self._tracker is None or not self._tracker.is_running():
            words = self.command("rpc", "tracker", "--port", str(self.port), "--json")
            self._tracker = Process(words, self.environment, self.folder / "tracker.log")

    def stop_tracker(self) -> None:
        if self._tracker is not None:
            self._tracker.end()

    def serve(self, key: str, *options: str) -> dict[str, Any]:
        """Serve the device under a key, if that is not done yet; the report."""
        if key not in self.servers or not self.servers[key].is_running():
            for other in self.servers.values():
                other.end()  # one server has the device to itself
            words = self.command(
                "rpc", "serve", "--device", "desk", "--key", key, *options, "--json", "-v"
            )
            log = self.folder / f"{key}.log"
            self.servers[key] = Process(words, self.environment, log)
        return self.servers[key].report

    def server_report(self, key: str) -> dict[str, Any]:
        return self.servers[key].report

    def find_status(self, key: str) -> KeyStatus | None:
        return find_status(self.address, key)

    def status(self, key: str) -> dict[str, Any]:
        """As the command line tells it."""
        (found,) = [status for status in self.json("status")["keys"] if status["key"] == key]
        return dict(found)

    def free(self, key: str) -> int:
        return free_devices(self.address, key)

    def agents(self) -> list[int]:
        """The agents of this lab's device, without their sessions."""
        found = []
        for pid, words in _processes():
            if words[:1] and words[0].startswith(str(self.ssh.root)) and words[1:2] == ["serve"]:
                found.append(pid)
        # One that has just ended has no parent any more: a session's, most likely.
        return [pid for pid in found if _parent(pid) not in (None, *found)]

    def children(self, pid: int) -> list[int]:
        return [child for child, _ in _processes() if _parent(child) == pid]

    def family(self, pid: int) -> list[int]:
        return [pid, *(one for child in self.children(pid) for one in self.family(child))]

    def alive(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if _state(pid) not in (None, "Z")]

    def close(self) -> None:
        for process in (*self.servers.values(), self._tracker):
            if process is not None:
                process.end(signal.SIGKILL)


@contextmanager
def rpc_lab(folder: Path) -> Iterator[Lab]:
    with ssh_server(folder / "ssh") as server:
        environment = environment_in(folder)
        lab = Lab(folder, server, environment, free_port())
        added = subprocess.run(
            lab.command(
                *("device", "add", "desk", f"{server.user}@127.0.0.1:{server.port}"),
                *("--board", "local", "--key", server.key, "--fingerprint", server.fingerprint),
            ),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert added.returncode == 0, added.stderr
        try:
            yield lab
        finally:
            lab.close()


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        yield int(folder.name), words


def _fields(pid: int) -> list[str]:
    try:
        said = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return said.rpartition(")")[2].split()


def _parent(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[1]) if fields else None


def _state(pid: int) -> str | None:
    fields = _fields(pid)
    return fields[0] if fields else None
