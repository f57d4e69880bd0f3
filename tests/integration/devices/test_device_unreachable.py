"""A machine without a network, for real: what the user is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.building import command_line, environment
from support.needs import needs


@needs("networks")
def test_no_route_is_told_in_a_sentence(tmp_path: Path) -> None:
    alone = ["unshare", "-rn"]
    (tmp_path / "edgekit.toml").write_text(
        'schema = 1\n[devices.far]\nboard = "rpi4"\nhost = "192.0.2.7"\nuser = "pi"\n'
    )

    done = subprocess.run(
        [*alone, *command_line("device", "check", "far")],
        cwd=tmp_path,
        env=environment({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 8
    error, hint = done.stderr.strip().splitlines()
    assert error == "error: there is no route to 192.0.2.7"
    assert hint.startswith("hint: ")
