"""Starts a scheduler and workers for one command: on this host, or on hosts over SSH.

Each gets its certificate through its standard input and ends when that is closed, so that nothing
stays behind. What ends before is started again.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from edgekit.base.children import (
    NEUTRAL_FOLDER,
    PIPE,
    LastLines,
    Process,
    Streams,
    end,
    start,
    start_module,
)
from edgekit.base.errors import DeviceError
from edgekit.base.events import Events
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.signals import signal_meaning
from edgekit.cluster.certificates import Credentials, make_certificates
from edgekit.cluster.place import Local, Remote
from edgekit.cluster.serving import credentials_as_line, own_address

_AGAIN_SECONDS = 2.0
_SECONDS_TO_START, _SECONDS_TO_END = 60.0, 5.0
_MOST_LINES = 20
_PROGRAM = "edgekit"
_FROM_INPUT = ("--credentials-from-input",)


@dataclass(frozen=True)
class Started:
    """A cluster that was started for one command."""

    address: str
    credentials: Credentials
    """Those of a client."""
    worker_credentials: Credentials
    processes: Sequence[Kept]
    """The scheduler, then the workers."""


class Kept:
    """A process of the cluster, which is started again when it ends."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Process],
        credentials: Credentials,
        events: Events,
        heard: Callable[[bytes], None] = lambda line: None,
    ) -> None:
        self.name = name
        self.process: Process | None = None
        self._command = command
        self._credentials = credentials
        self._events = events
        self._heard = heard
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the process, which gets some seconds for that."""
        self._over.set()
        _end_input(self.process)
        self._thread.join(_SECONDS_TO_END)
        if self.process is not None:
            end(self.process)
        self._thread.join()

    def _keep(self) -> None:
        while not self._over.is_set():
            process = self.process = self._command()
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            lines = LastLines(process.stderr, _MOST_LINES)
            with suppress(OSError):
                process.stdin.write(credentials_as_line(self._credentials))
            if self._over.is_set():
                _end_input(process)
            with suppress(ValueError):  # closed by `close`
                for line in process.stdout:
                    self._heard(line)
            process.wait()
            lines.wait(_AGAIN_SECONDS)
            if not self._over.is_set():
                end(process)
                *_, said = (
                    _end_of(process),
                    *(line for line in lines if not line.startswith("hint: ")),
                )
                self._events.warn(f"{self.name} ended and is started again: {said}")
                self._over.wait(_AGAIN_SECONDS)


def _end_of(process: Process) -> str:
    code = process.returncode or 0
    return signal_meaning(-code) if code < 0 else f"it ended with {code}"


def _end_input(process: Process | None) -> None:
    if process is not None and process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


@contextmanager
def started(place: Local | Remote, events: Events) -> Iterator[Started]:
    """Run a scheduler and workers for the block, with certificates of their own."""
    certificates = make_certificates()
    ready = threading.Event()
    found: list[str] = []

    def heard(line: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError):
            found.append(json.loads(line)["address"])
            ready.set()

    host = "127.0.0.1"
    if isinstance(place, Remote):
        host = own_address(place.hosts[0].name.rpartition("@")[2])
    first = f"[{host}]:0" if ":" in host else f"{host}:0"

    def scheduler() -> Process:
        listen = found[0].partition("//")[2] if found else first
        return _here("scheduler", "--json", "--listen", listen)

    kept = [Kept("the scheduler", scheduler, certificates["scheduler"], events, heard)]
    try:
        if not ready.wait(_SECONDS_TO_START):
            raise DeviceError(
                f"no scheduler came up in {_SECONDS_TO_START:g} s",
                hint=f"`edgekit cluster scheduler --listen {first}` shows why",
            )
        address = found[0]
        for name, command in _workers(place, address):
            kept.append(Kept(name, command, certificates["worker"], events))
        yield Started(address, certificates["client"], certificates["worker"], kept)
    finally:
        for one in reversed(kept):
            one.close()


def _workers(place: Local | Remote, address: str) -> Iterator[tuple[str, Callable[[], Process]]]:
    if isinstance(place, Local):
        for number in range(1, place.workers + 1):
            name = f"worker {number}"
            words = ("worker", address, "--lanes", str(place.lanes), "--name", name)
            yield name, partial(_here, *words)
        return
    for host in place.hosts:
        lanes = () if host.lanes is None else ("--lanes", str(host.lanes))
        remote = (host.program, "cluster", "worker", address, "--name", host.name, *lanes)
        ssh = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--")
        command = (*ssh, host.name, shlex.join((*remote, *_FROM_INPUT)))
        yield host.name, partial(_over_ssh, command)


def _here(*words: str) -> Process:
    with interrupts_deferred():
        return start_module([_PROGRAM, "cluster", *words, *_FROM_INPUT])


def _over_ssh(command: Sequence[str]) -> Process:
    with interrupts_deferred():
        streams = Streams(PIPE, errors=PIPE, buffered=False)
        return start(command, folder=NEUTRAL_FOLDER, streams=streams)
