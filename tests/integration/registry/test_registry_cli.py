"""The first five minutes of docs/registry.md, typed as they stand but for the port."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from support.building import write_model
from support.collector import running_collector
from support.needs import needs
from support.registry import RegistryServer
from support.source import ROOT

pytestmark = [needs("docker-registry"), needs("curl")]


def test_the_page_as_it_stands(registry: RegistryServer, tmp_path: Path) -> None:
    page = (ROOT / "docs/registry.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines, rollouts, boards, tended = (
        [line for line in block.splitlines() if line.startswith(("edgekit ", "board/"))]
        for block in blocks
    )
    work = tmp_path / "work"
    work.mkdir()
    write_model(work / "net.onnx")
    home = tmp_path / "home"
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    changed = {"XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}

    environment = {**os.environ, **changed, "PATH": programs}

    def type_in(line: str) -> str:
        done = subprocess.run(
            line.replace("127.0.0.1:5055", registry.host).split(),
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    printed = {line.split()[1]: type_in(line) for line in lines}

    assert list(printed) == ["keys", "build", "publish", "fetch", "verify"]
    assert "publication  1" in printed["publish"]
    assert "net for local, signed by kitchen" in printed["fetch"]
    again = json.loads(type_in(f"{lines[2]} --json"))
    assert (again["is_new"], again["sent"]) == (False, 0)
    keys = json.loads(type_in("edgekit keys list --json"))["keys"]
    assert [(key["name"], key["signs"]) for key in keys] == [("kitchen", True)]
    private = home / "config" / "edgekit" / "keys" / "kitchen.key"
    assert private.stat().st_mode & 0o777 == 0o600

    started, next_one, status, paused, back = (type_in(line) for line in rollouts)
    assert "share 1 %" in " ".join(started.split())
    assert "share 10 %" in " ".join(next_one.split())
    said = json.loads(status)
    assert (said["share"], said["rollout"]["version"]["tag"]) == (0.1, "stable")
    assert said["rollout"]["version"]["manifest"] == again["digest"]
    assert "channel kitchen: paused" in paused
    assert "channel kitchen: back" in back

    written, followed = (type_in(line) for line in boards)
    assert "edgekit-agent, edgekit-follow.service, edgekit-follow.timer, kitchen.pub" in written
    assert json.loads(followed)["outcome"] == "nothing"  # the only rollout was taken back
    type_in(rollouts[0].replace("1%,10%,100%", "100%"))
    assert json.loads(type_in(boards[1]))["outcome"] == "updated"

    collect, start, follow, status, tend = tended
    assert collect == "edgekit rollout collect"
    type_in(start.replace("1%,10%,100%", "100%"))
    with running_collector(env=environment) as url:
        followed = type_in(follow.replace("http://127.0.0.1:9191/reports", url))
    assert json.loads(followed)["outcome"] == "updated"
    counted = json.loads(type_in(f"{status} --json"))["tally"]
    assert (counted["healthy"], counted["failed"]) == (1, 0)
    assert "failed 100 % 1 0" in " ".join(type_in(status).split())
    assert "the wave has to stay healthy" in type_in(tend)
