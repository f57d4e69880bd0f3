"""Two hosts with a farm each, as far as edgekit can tell: own folders, own devices, and SSH."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.base.unix_sockets import reachable
from support.rpc_lab import Lab, Process, eventually, rpc_lab

PASSED_ON = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "EDGEKIT_CACHE_DIR", "EDGEKIT_STORE", "PYTHONPATH")


@dataclass
class FarmOn:
    """A farm on one of the hosts."""

    lab: Lab
    keeper: Process | None = None
    others: list[Process] = field(default_factory=list)

    def up(self, *names: str) -> None:
        words = self.words("up", *names, "--port", str(self.lab.port), "--json", "-v")
        self.keeper = Process(words, self.lab.environment, self.lab.folder / "farm.log")

    def words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "edgekit", "farm", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.edgekit("farm", *arguments)

    def edgekit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "edgekit", *arguments],
            env=self.lab.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ask(self, what: str, device: str = "") -> Any:
        """What the keeper says, without a process being started for the question."""
        path = Path(self.lab.environment["XDG_DATA_HOME"]) / "edgekit" / "farm" / "control.sock"
        with socket.socket(socket.AF_UNIX) as stream, reachable(path) as name:
            stream.settimeout(240)
            stream.connect(name)
            stream.sendall(json.dumps({"do": what, "device": device}).encode() + b"\n")
            with stream.makefile("rb") as answer:
                return json.loads(answer.readline())

    def device(self, name: str) -> dict[str, Any]:
        """What the farm says of a device; nothing where it has none of that name."""
        found = [d for d in self.ask("status")["devices"] if d["name"] == name]
        return dict(found[0]) if found else {}

    def becomes(self, name: str, *states: str) -> None:
        eventually(lambda: self.device(name).get("state") in states)

    def python(self, script: str) -> Process:
        words = [sys.executable, "-c", script, str(self.lab.port)]
        process = Process(words, self.lab.environment, self.lab.folder / "client.log")
        self.others.append(process)
        return process

    def join(self, other: FarmOn, name: str) -> Any:
        server = other.lab.ssh
        return self.json(
            *("join", f"{server.user}@127.0.0.1:{server.port}", "--name", name),
            *("--key", server.key, "--fingerprint", server.fingerprint, "--force"),
        )

    def close(self) -> None:
        for process in (*self.others, self.keeper):
            if process is not None:
                process.end(signal.SIGKILL)


@contextmanager
def farm_on(folder: Path) -> Iterator[FarmOn]:
    """A user who logs in to its SSH server finds its edgekit."""
    with rpc_lab(folder) as lab:
        program = lab.ssh.home / ".local" / "bin" / "edgekit"
        program.parent.mkdir(parents=True)
        settings = "".join(
            f"export {name}='{lab.environment[name]}'\n"
            for name in PASSED_ON
            if name in lab.environment
        )
        program.write_text(
            f"#!/bin/sh\n{settings}cd '{Path.cwd()}'\nexec '{sys.executable}' -m edgekit \"$@\"\n"
        )
        program.chmod(0o755)
        farm = FarmOn(lab)
        try:
            yield farm
        finally:
            farm.close()
