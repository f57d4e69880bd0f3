"""What is reached through SSH fails: devices, the network in between, another host's farm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.rpc_lab import _parent, _processes
from support.ssh_server import SshServer, ssh_server

from faults.store_faults import CannotBeTried
from faults.world import ROOT, Broken, World, eventually, world

_HERE, _THERE = "10.231.77.1", "10.231.77.2"


def the_connection_to_a_device_is_cut(folder: Path) -> None:
    with _ssh_device(folder) as (lab, server):
        work = lab.start_work()
        for count in (2, 5):
            work.has(count)
            server.drop_connections()
        work.finishes()
        lab.all_free()


def the_server_of_a_device_restarts(folder: Path) -> None:
    """As a device that is switched off and on again."""
    with _ssh_device(folder) as (lab, server):
        work = lab.start_work()
        work.has(2)
        server.process.kill()
        server.drop_connections()
        server.process.wait()
        time.sleep(2)
        words = [str(shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")), "-D", "-f"]
        again = subprocess.Popen(
            [*words, str(server.folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            work.finishes()
            lab.all_free()
            lab.close()
        finally:
            for pid in reversed(_family(again.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            again.wait()


def a_board_hangs(folder: Path) -> None:
    """All processes of the host stand still: noticed by its silence."""
    with _ssh_device(folder) as (lab, server):
        work = lab.start_work()
        work.has(2)
        frozen = _family(server.process.pid)
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        eventually("it is noticed", lambda: lab.devices()[0]["state"] not in ("free", "busy"))
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        work.finishes()
        lab.all_free()


def an_agent_is_frozen(folder: Path) -> None:
    """The host does not end the session when its time is over, so the farm does."""
    with _ssh_device(folder) as (lab, server):
        work = lab.start_work()
        work.has(2)
        lab.busy_device()
        for pid in _agents_of(server, "serve"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        work.finishes()
        lab.all_free()


def another_hosts_farm_is_killed(folder: Path) -> None:
    with _joined(folder) as (lab, other, _):
        work = lab.start_work()
        work.has(2)
        assert other.keeper is not None
        other.keeper.kill()
        other.keeper.wait()
        eventually("its devices are lost", lambda: lab.devices()[0]["state"] == "lost")
        other.start_keeper()
        work.finishes()
        lab.all_free()


def the_connection_to_another_host_is_cut(folder: Path) -> None:
    with _joined(folder) as (lab, _, server):
        work = lab.start_work()
        for count in (2, 5):
            work.has(count)
            server.drop_connections()
        work.finishes()
        lab.all_free()


def the_link_to_a_device_is_dropped(folder: Path) -> None:
    """Every packet to and from its network namespace is thrown away for half a minute."""
    with _network(folder) as network, _ssh_device(folder / "lab", network) as (lab, _):
        work = lab.start_work()
        work.has(2)
        network.drop()
        eventually("it is noticed", lambda: lab.devices()[0]["state"] not in ("free", "busy"))
        network.pass_again()
        work.finishes()
        lab.all_free()


@contextmanager
def _ssh_device(folder: Path, network: Network | None = None) -> Iterator[tuple[World, SshServer]]:
    """A farm whose one device is behind a real SSH server."""
    extra = f"ListenAddress {_HERE}" if network is not None else ""
    with ssh_server(folder / "ssh", extra) as server:
        address = "127.0.0.1" if network is None else _HERE

        def prepare(lab: World) -> None:
            lab.inside = () if network is None else network.inside
            _done(
                lab.edgekit(
                    *("device", "add", "desk", f"{server.user}@{address}:{server.port}"),
                    *("--board", "local", "--key", server.key),
                    *("--fingerprint", server.fingerprint),
                )
            )

        with world(folder / "world", devices=0, prepare=prepare) as lab:
            yield lab, server
        eventually("nothing runs on the device", lambda: not _agents_of(server), 60)
        left = list((server.root / "runs").glob("*/*")) if server.root.exists() else []
        if left:
            raise Broken(f"left on the device: {left[:3]}")


@contextmanager
def _joined(folder: Path) -> Iterator[tuple[World, World, SshServer]]:
    """A farm without devices of its own, another host's farm with two, and the way there."""
    with ssh_server(folder / "ssh") as server, world(folder / "other", devices=2) as other:
        program = server.home / ".local" / "bin" / "edgekit"
        program.parent.mkdir(parents=True)
        settings = "".join(
            f"export {name}='{value}'\n"
            for name, value in other.environment.items()
            if name.startswith(("XDG_", "EDGEKIT_", "PYTHONPATH", "TMPDIR"))
        )
        program.write_text(
            f"#!/bin/sh\n{settings}cd '{ROOT}'\nexec '{sys.executable}' -m edgekit \"$@\"\n"
        )
        program.chmod(0o755)

        def prepare(lab: World) -> None:
            _done(
                lab.edgekit(
                    *("farm", "join", f"{server.user}@127.0.0.1:{server.port}"),
                    *("--name", "attic", "--key", server.key),
                    *("--fingerprint", server.fingerprint),
                )
            )

        with world(folder / "world", devices=0, prepare=prepare) as lab:
            lab.all_free()
            yield lab, other, server


@dataclass(frozen=True)
class Network:
    """A namespace that only one pair of interfaces leads to."""

    name: str
    link: str

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def drop(self) -> None:
        _ip(*self.inside[1:], "ip", "link", "set", f"{self.link}b", "down")

    def pass_again(self) -> None:
        _ip(*self.inside[1:], "ip", "link", "set", f"{self.link}b", "up")


@contextmanager
def _network(folder: Path) -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise CannotBeTried("a network namespace needs root and iproute2")
    network = Network(f"edgekit{os.getpid()}", f"ek{os.getpid() % 100000}")
    folder.mkdir(parents=True, exist_ok=True)
    _ip("netns", "add", network.name)
    try:
        _ip("link", "add", f"{network.link}a", "type", "veth", "peer", "name", f"{network.link}b")
        _ip("link", "set", f"{network.link}b", "netns", network.name)
        _ip("addr", "add", f"{_HERE}/30", "dev", f"{network.link}a")
        _ip("link", "set", f"{network.link}a", "up")
        inside = network.inside[1:]
        _ip(*inside, "ip", "addr", "add", f"{_THERE}/30", "dev", f"{network.link}b")
        _ip(*inside, "ip", "link", "set", f"{network.link}b", "up")
        _ip(*inside, "ip", "link", "set", "lo", "up")
        yield network
    finally:
        subprocess.run(["ip", "netns", "del", network.name], check=False)
        subprocess.run(["ip", "link", "del", f"{network.link}a"], check=False, capture_output=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotBeTried(f"this machine makes no networks: {done.stderr.strip()}")


def _done(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise Broken(done.stderr[-300:])


def _agents_of(server: SshServer, doing: str = "") -> list[int]:
    """Those that serve are watched over by others."""
    return [
        pid
        for pid, words in _processes()
        if words[0].startswith(str(server.root)) and (not doing or words[1:2] == [doing])
    ]


def _family(pid: int) -> list[int]:
    children = [child for child, _ in _processes() if _parent(child) == pid]
    return [pid, *(one for child in children for one in _family(child))]
