"""A board in QEMU that follows a channel as its image's systemd starts it: emulated, with its own
curl, through a network of one SSH connection."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import onnx
import pytest
from onnx import helper
from support.building import request_for
from support.collector import running_collector
from support.needs import TWIN, needs
from support.onnx_models import onnx_model
from support.registry import RegistryServer
from support.twins import on_twin, share_images, twins_in

import edgekit
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.profiles.board import load_board
from edgekit.twin import qemu
from edgekit.twin.access import Access
from edgekit.twin.machine import StartOptions, twin_folder, up
from edgekit.twin.systemd import systemd_recipe

pytestmark = [pytest.mark.slow, needs(*TWIN, "docker-registry")]

NAME, STATE = "shed", "/var/lib/edgekit"
RECIPE = replace(systemd_recipe(), packages=(*systemd_recipe().packages, "curl"))
CURRENT = f"sudo readlink {STATE}/deployments/net/current"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("twins")
    share_images(folder, RECIPE)
    with twins_in(folder):
        yield


@contextmanager
def powered(*ports: int) -> Iterator[Access]:
    """A running twin that reaches these ports of this machine."""
    started = up(NAME, load_board("rpi4"), StartOptions(recipe=RECIPE), limit_s=900)
    forwards = [word for port in ports for word in ("-R", f"{port}:127.0.0.1:{port}")]
    *ssh, name = started.access.command()
    command = [*ssh, "-N", *forwards, name]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as tunnel:
        try:
            yield started.access
        finally:
            tunnel.kill()


def built(folder: Path, last: str) -> Bundle:
    folder.mkdir()
    nodes = [helper.make_node(last, ["image"], ["features"])]
    onnx.save(onnx_model(nodes, {"image": [1, 64]}, ["features"], {}), folder / "net.onnx")
    return build(request_for(folder / "net.onnx", "rpi4"), folder / "out", isolated=False).bundle


def test_a_board_follows_by_its_own_systemd_and_outlives_a_power_cut(
    registry: RegistryServer, workspace: edgekit.Workspace, tmp_path: Path
) -> None:
    first, second = built(tmp_path / "1", "Relu"), built(tmp_path / "2", "Tanh")
    for tag, bundle in (("1", first), ("2", second)):
        workspace.publish(bundle, registry.address(f"net:{tag}"))
    repository = f"oci://{registry.host}/net"
    workspace.start_rollout(f"{repository}:1", "kitchen", waves="100%", healthy_after=1)
    with running_collector() as url:
        folder = workspace.follower(
            *(repository, "kitchen", "board"), board="rpi4", report=url, plain_http=True
        ).path
        ports = (registry.port, urlsplit(url).port or 0)
        with powered(*ports) as access:
            packed = subprocess.run(
                ["tar", "c", "-C", folder, "."], check=True, capture_output=True
            )
            unpack = "sudo mkdir -p /opt/edgekit && sudo tar xo -C /opt/edgekit"
            subprocess.run(access.command(unpack), input=packed.stdout, check=True, timeout=300)
            on_twin(
                access,
                "sudo systemctl link /opt/edgekit/edgekit-follow.service && "
                "sudo systemctl enable --now /opt/edgekit/edgekit-follow.timer && "
                "sudo systemctl start edgekit-follow.service",
            )
            assert Path(on_twin(access, CURRENT).strip()).name == first.digest
            said = on_twin(access, "sudo journalctl -b -u edgekit-follow -o cat | grep outcome")
            assert json.loads(said.splitlines()[-1])["outcome"] == "updated"
            tended = workspace.tend_rollout(repository, "kitchen")
            assert (tended.tally.healthy, tended.tally.failed) == (1, 0)

            workspace.start_rollout(f"{repository}:2", "kitchen", waves="100%", healthy_after=1)
            on_twin(access, "sudo systemctl start --no-block edgekit-follow.service")
            time.sleep(1)
            (process,) = (one for one in qemu.running() if one.folder == twin_folder(NAME))
            qemu.kill(process)
        with powered(*ports) as access:
            assert Path(on_twin(access, CURRENT).strip()).name in (first.digest, second.digest)
            on_twin(access, "sudo systemctl start edgekit-follow.service")
            assert Path(on_twin(access, CURRENT).strip()).name == second.digest
            tended = workspace.tend_rollout(repository, "kitchen")
            assert (tended.tally.healthy, tended.tally.failed) == (1, 0)
