"""Twins with systemd as their init: whole, reached the same way, shut down in good order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.needs import TWIN, needs
from support.twins import edgekit, edgekit_json, on_twin, share_images, twins_in

from edgekit.profiles.board import load_board
from edgekit.twin.machine import StartOptions, down, up
from edgekit.twin.recipe import RELEASES
from edgekit.twin.systemd import systemd_recipe

pytestmark = [
    pytest.mark.slow,
    needs(*TWIN),
]

RPI4 = load_board("rpi4")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("twins")
    share_images(folder, systemd_recipe())  # that of one release; the other one is built
    with twins_in(folder):
        yield folder


@pytest.mark.parametrize("release", [name for name, _ in RELEASES])
def test_every_release_starts_with_no_unit_that_failed(release: str) -> None:
    started = up(release, RPI4, StartOptions(recipe=systemd_recipe(release)), limit_s=900)
    assert on_twin(started.access, "cat /proc/1/comm") == "systemd\n"
    state = on_twin(started.access, "sudo systemctl is-system-running --wait || true")
    failed = on_twin(started.access, "sudo systemctl --failed --plain --no-legend")
    assert (state, failed) == ("running\n", "")
    assert "Server listening" in on_twin(started.access, "sudo journalctl -b -u sshd")
    assert down(release).how == "powered off"


def test_a_twin_keeps_its_init_and_its_disk() -> None:
    first = edgekit_json("twin", "up", "rpi4", "--name", "shed", "--init", "systemd")
    assert first["init"] == "systemd"
    assert edgekit("twin", "ssh", "shed", "echo precious > kept").returncode == 0
    refused = edgekit("twin", "up", "shed", "--init", "busybox")
    assert refused.returncode == 2
    assert "systemd as its init" in refused.stderr
    assert edgekit_json("twin", "down", "shed")["twins"][0]["how"] == "powered off"
    again = edgekit_json("twin", "up", "shed")
    assert again["init"] == "systemd"
    said = edgekit("twin", "ssh", "shed", "cat kept /proc/1/comm").stdout
    assert said == "precious\nsystemd\n"
    assert "$ mke2fs" in edgekit("twin", "logs", "--build", "--init", "systemd").stdout
    assert edgekit_json("twin", "up", "shed", "--init", "busybox", "--fresh")["init"] == "busybox"
