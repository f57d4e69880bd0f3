"""A farm, work that goes on, a store, and what has to be true when all of it is over."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.ports import free_port
from support.rpc_lab import _fields, _parent, _processes

from edgekit.base.unix_sockets import reachable

ROOT = Path(__file__).parents[2]
MARK = "EDGEKIT_FAULTS"
RECORDS = 12
SECONDS = 170.0
KEY = "local"


class Broken(AssertionError):
    """What had to hold did not."""


def eventually(what: str, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Broken(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


@dataclass
class Work:
    """`faults.work`, whose every printed number is a record that is safe."""

    process: subprocess.Popen[str]
    log: Path
    safe: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.safe.append(int(line))

    def has(self, count: int) -> None:
        """Wait until so many records are safe: the work is well under way."""
        eventually(f"{count} records", lambda: len(self.safe) >= count or self.is_over())
        if self.is_over():
            self._reader.join()  # its last words may still be on their way
        if len(self.safe) < count:
            raise Broken(f"the work ended early: {self.said()}")

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def finishes(self, count: int = RECORDS) -> None:
        eventually("the work is done", self.is_over)
        self._reader.join()
        if self.process.returncode != 0 or sorted(self.safe) != list(range(count)):
            raise Broken(
                f"the work ended with {self.process.returncode} and {len(self.safe)} of {count} "
                f"records: {self.said()}"
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def said(self) -> str:
        return self.log.read_text()[-400:]


class World:
    """Everything of it lies below one folder and carries one mark in its environment."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.port = free_port()
        self.temporary = folder / "tmp"
        for name in ("tmp", "data", "config", "work", "keep"):
            (folder / name).mkdir(parents=True)
        self.store = store or f"sqlite:///{folder / 'keep' / 'measurements.db'}"
        self.environment: dict[str, str] = {
            **os.environ,
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TMPDIR": str(self.temporary),
            "EDGEKIT_STORE": self.store,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
            MARK: self.mark,
        }
        self.inside: tuple[str, ...] = ()
        """What runs a command where the farm is: in a network namespace, perhaps."""
        self.keeper: subprocess.Popen[str] | None = None
        self.works: list[Work] = []
        self._devices = 3

    @property
    def data(self) -> Path:
        return self.folder / "data" / "edgekit"

    def start_keeper(self, devices: int | None = None) -> None:
        """The second time with as many devices as the first."""
        devices = self._devices = self._devices if devices is None else devices
        words = [sys.executable, "-m", "faults.keep", str(self.port), str(devices), agent_here()]
        with (self.folder / "keeper.log").open("ab") as log:
            self.keeper = subprocess.Popen(
                [*self.inside, *words, str(self.folder / "work")],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.keeper.stdout is not None
        if not self.keeper.stdout.readline():
            raise Broken(f"the farm did not start: {self.keeper_said()}")

    def keeper_said(self) -> str:
        return (self.folder / "keeper.log").read_text()[-400:]

    def start_work(self, count: int = RECORDS) -> Work:
        log = self.folder / f"work{len(self.works)}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*self.inside, sys.executable, "-m", "faults.work", str(count)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        work = Work(process, log)
        self.works.append(work)
        return work

    def edgekit(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.inside, sys.executable, "-m", "edgekit", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def ask(self, request: Mapping[str, object]) -> Any:
        with (
            socket.socket(socket.AF_UNIX) as stream,
            reachable(self.data / "farm" / "control.sock") as name,
        ):
            stream.settimeout(240)
            stream.connect(name)
            stream.sendall(json.dumps(request).encode() + b"\n")
            with stream.makefile("rb") as answer:
                return json.loads(answer.readline())

    def devices(self) -> list[dict[str, Any]]:
        return list(self.ask({"do": "status"})["devices"])

    def all_free(self) -> None:
        def are_free() -> bool:
            try:
                return all(device["state"] == "free" for device in self.devices())
            except OSError:
                return False  # the keeper is being started again

        eventually("every device is free", are_free)

    def busy_device(self) -> str:
        """One that somebody has right now."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [d["name"] for d in self.devices() if d["state"] == "busy"]
            return bool(found)

        eventually("a device is in use", look)
        return found[0]

    def processes(self, word: str = "") -> list[int]:
        """Those of this world that are alive, with a word in their command only."""
        found = []
        for pid, words in _processes():
            if word in " ".join(words) and self._is_ours(pid):
                found.append(pid)
        return found

    def _is_ours(self, pid: int) -> bool:
        try:
            marked = f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        fields = _fields(pid)
        return marked and bool(fields) and fields[0] != "Z" and pid != os.getpid()

    def agents(self) -> list[int]:
        """The agents themselves, not their sessions."""
        agents = self._run_agent()
        # A session that has just ended has no parent any more.
        return [pid for pid in agents if _parent(pid) not in (None, *agents)]

    def sessions(self) -> list[int]:
        agents = self._run_agent()
        return [pid for pid in agents if _parent(pid) in agents]

    def _run_agent(self) -> list[int]:
        """Others have its name among their words."""
        return [
            pid
            for pid, words in _processes()
            if "/edgekit-agent" in words[0] and self._is_ours(pid)
        ]

    def kept(self) -> set[int]:
        """The records that the store has, or that wait for it."""
        script = (
            "from faults.work import known; from edgekit.store.address import default_url\n"
            "print(*known(default_url()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise Broken(f"the store can't be read: {done.stderr[-300:]}")
        return {int(word) for word in done.stdout.split()}

    def check_records(self) -> None:
        safe = {number for work in self.works for number in work.safe}
        lost = safe - self.kept()
        if lost:
            raise Broken(f"{len(lost)} of {len(safe)} records were lost")

    def close(self) -> None:
        """End it as a person would."""
        for work in self.works:
            if not work.is_over():
                work.kill()
        if self.keeper is not None:
            if self.keeper.poll() is None:
                self.keeper.send_signal(signal.SIGCONT)
                self.keeper.send_signal(signal.SIGTERM)
            try:
                self.keeper.wait(60)
            except subprocess.TimeoutExpired as error:
                raise Broken("the farm does not end") from error

    def check_leaks(self) -> None:
        eventually("nothing of it runs on", lambda: not self.processes())
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                raise Broken("the tracker's port is still open")
        left = [path.name for path in self.temporary.iterdir()]
        left += [path.name for path in self.data.rglob("*.edgekit-tmp")]
        left += [path.name for path in self.data.rglob("control.sock")]
        if left:
            raise Broken(f"left behind: {left[:5]}")

    def kill_all(self) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def world(
    folder: Path,
    *,
    devices: int = 3,
    store: str | None = None,
    prepare: Callable[[World], None] = lambda made: None,
) -> Iterator[World]:
    """Up, and checked when the block ends: nothing lost, nothing left behind. With no devices of
    its own, it has those that `prepare` makes known."""
    made = World(folder, store)
    try:
        prepare(made)
        made.start_keeper(devices)
        yield made
        made.check_records()
        made.close()
        made.check_leaks()
    finally:
        made.kill_all()
        shutil.rmtree(folder, ignore_errors=True)


def agent_here() -> str:
    """The agent with TVM's runtime for this machine, built if need be."""
    from edgekit.agent.build import build_runtime
    from edgekit.profiles.board import load_board
    from edgekit.profiles.toolchain import load_toolchain

    toolchain = load_toolchain(load_board("local").toolchain)
    return str(build_runtime(toolchain, platform.machine()).program)
