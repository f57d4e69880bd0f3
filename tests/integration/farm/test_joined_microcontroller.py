"""An emulated microcontroller of another host whose farm has joined: every verb uses it from here,
and only the other host knows its sockets and its emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.building import write_model
from support.needs import MICROCONTROLLERS, needs
from support.rpc_lab import eventually
from support.twins import twins_in
from support.two_farms import FarmOn, farm_on

pytestmark = needs("sshd", *MICROCONTROLLERS)

BOARD = "mps2-an386"


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmOn]:
    folder = tmp_path_factory.mktemp("hosts")
    with (
        farm_on(folder / "near") as near,
        twins_in(folder / "cache"),
        farm_on(folder / "far") as far,
    ):
        devices = Path(far.lab.environment["XDG_CONFIG_HOME"]) / "edgekit" / "devices.toml"
        text = devices.read_text() if devices.exists() else "schema = 1\n"
        devices.write_text(f'{text}\n[devices.m4]\nboard = "{BOARD}"\ntwin = true\n')
        far.up("m4")
        far.becomes("m4", "free")  # blank, and not lost
        near.up()
        near.join(far, "attic")
        eventually(lambda: near.device("m4").get("host") == "attic")
        yield near


def test_every_command_uses_a_microcontroller_of_another_host(near: FarmOn, tmp_path: Path) -> None:
    model, bundle = write_model(tmp_path / "model.onnx"), str(tmp_path / "bundle")
    words = ("deploy", str(model), "--board", BOARD, "--device", "m4", "-o", bundle, "--json")
    first = near.edgekit(*words)  # it is blank, and takes the firmware
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    assert report["bench"]["measured_by"] == "emulator"
    near.becomes("m4", "free")  # it answers the checks of its own host's farm

    rewritten = near.edgekit("flash", bundle, "--device", "m4", "--again", "--json")
    assert json.loads(rewritten.stdout)["written"] > 0
    for words in (
        ("run", bundle, "--device", "m4"),
        ("bench", bundle, "--device", "m4"),
        ("monitor", "--device", "m4", "--seconds", "0"),
    ):
        done = near.edgekit(*words)
        assert done.returncode == 0, (words, done.stderr)
    eventually(lambda: near.device("m4").get("lease") is None)
