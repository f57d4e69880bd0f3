"""Workers on hosts that SSH reaches: a real client, and a real server on the loopback."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from support.building import CHECKOUT
from support.needs import needs
from support.ssh_server import ssh_server

from edgekit.base.events import Events, Warned

pytestmark = needs("dask", "sshd")


def _script(path: Path, line: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_workers_come_over_ssh_and_go_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.cluster_tasks import HERE, Note, wait_for

    from edgekit.cluster.cluster import cluster_at
    from edgekit.cluster.place import parse_place

    log, warned = tmp_path / "log", []
    # A host's own edgekit, which finds the tests' tasks too.
    program = _script(
        tmp_path / "edgekit",
        f'PYTHONPATH={CHECKOUT}:{CHECKOUT}/tests exec {sys.executable} -m edgekit "$@"',
    )
    (tmp_path / "hosts").write_text(f"127.0.0.1 3 {program}\n")
    events = Events(lambda event: warned.append(event) if isinstance(event, Warned) else None)
    with ssh_server(tmp_path / "server") as server:
        # OpenSSH finds its own settings by the user's account, whatever HOME says.
        settings = tmp_path / "settings"
        settings.write_text(
            f"Host 127.0.0.1\nPort {server.port}\nUser {server.user}\nIdentityFile {server.key}\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        )
        shim = _script(tmp_path / "bin" / "ssh", f'exec {shutil.which("ssh")} -F {settings} "$@"')
        monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
        with cluster_at(parse_place("ssh:hosts", tmp_path), HERE, events=events) as cluster:
            assert cluster.width == 3
            assert cluster.run(Note(str(log), 5), {}) == 5
        (pid,) = {int(line.split()[1]) for line in log.read_text().splitlines()}
        wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert not warned
