"""Building a twin's image for real: once for those who ask at once, and after being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.needs import TWIN, needs
from support.rpc_lab import eventually
from support.twins import COMMAND_SECONDS, edgekit, on_twin, processes_with, shared_image, twins_in

from edgekit.profiles.board import load_board
from edgekit.twin.image import Image, build_log, ensure_image, find_image
from edgekit.twin.machine import StartOptions, up
from edgekit.twin.recipe import RELEASES, default_recipe

pytestmark = [
    pytest.mark.slow,
    needs(*TWIN),
]

BUILD = "from edgekit.twin import image, recipe; image.ensure_image(recipe.default_recipe())"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    with twins_in(tmp_path):
        yield tmp_path


def _build() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUILD])


def _image() -> Image:
    image = find_image(default_recipe())
    assert image is not None
    return image


def test_a_damaged_image_is_built_again(cache: Path) -> None:
    shared = shared_image(default_recipe())
    mine = cache / "twins" / shared.name
    mine.parent.mkdir()
    subprocess.run(["cp", "-r", "--sparse=always", shared, mine], check=True)
    made = find_image(default_recipe())
    assert made is not None
    kernel = made.kernel
    whole = kernel.stat().st_size
    os.truncate(kernel, 1000)
    assert find_image(default_recipe()) is None
    ensure_image(default_recipe())
    assert kernel.stat().st_size == whole


def test_builds_that_were_killed_leave_nothing_to_two_who_ask_at_once_and_get_one(
    cache: Path,
) -> None:
    for step in ("apt-get -q=2 download", "dpkg-deb", "mke2fs"):
        log = build_log(default_recipe())
        log.unlink(missing_ok=True)
        builder = _build()
        while not (log.exists() and f"$ {step}" in log.read_text(errors="replace")):
            assert builder.poll() is None
            time.sleep(0.02)
        builder.send_signal(signal.SIGKILL)
        builder.wait()
        assert find_image(default_recipe()) is None
        eventually(lambda: processes_with(str(cache)) == [])
    builders = [_build(), _build()]
    assert [builder.wait(COMMAND_SECONDS) for builder in builders] == [0, 0]
    # The log is begun anew by each build.
    assert build_log(default_recipe()).read_text().count("$ mke2fs") == 1
    made = _image().disk.stat().st_mtime_ns
    ensure_image(default_recipe())
    assert _image().disk.stat().st_mtime_ns == made
    contents = json.loads((_image().folder / "image.json").read_text())
    assert any(package.startswith("openssh-server_") for package in contents["packages"])
    assert not [path for path in (cache / "twins").iterdir() if path.name.endswith("edgekit-tmp")]


@pytest.mark.parametrize(
    "release", [name for name, _ in RELEASES if name != default_recipe().release]
)
def test_every_other_release_makes_a_system_that_starts_too(cache: Path, release: str) -> None:
    started = up("rpi5", load_board("rpi5"), StartOptions(recipe=default_recipe(release)))
    assert f"VERSION_CODENAME={release}" in on_twin(started.access, "cat /etc/os-release")


def test_no_way_to_debian_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    answer = edgekit("twin", "up", "rpi4")
    assert answer.returncode == 6
    assert "could not fetch the package lists" in answer.stderr
    assert not [path for path in (cache / "twins").iterdir() if path.name.endswith("edgekit-tmp")]


def test_missing_tools_are_named_with_what_installs_them(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(cache))
    answer = edgekit("twin", "up", "rpi4")
    assert answer.returncode == 5
    assert "qemu-system-aarch64" in answer.stderr
    assert "apt-get install --no-install-recommends openssh-client qemu-system-arm" in answer.stderr
