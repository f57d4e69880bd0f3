"""Boards that follow a channel: folders of this machine with the program that runs on boards, and a
real registry."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.building import tmpfs
from support.following import FollowingBoard
from support.local_bundles import copied, resealed, with_patched_kernels
from support.needs import needs
from support.registry import RegistryServer

import edgekit
from edgekit.agent.build import build_agent
from edgekit.bundle.folder import Bundle
from edgekit.devices.elf import weight_bytes
from edgekit.profiles.toolchain import load_toolchain
from edgekit.registry.keys import new_key

pytestmark = [needs("docker-registry"), needs("curl")]


@pytest.fixture
def repository(
    registry: RegistryServer, workspace: edgekit.Workspace, bundles: tuple[Bundle, Bundle]
) -> str:
    """A repository with a bundle of each version; all boards of the channel take the first one."""
    for tag, bundle in zip(("1", "2"), bundles, strict=True):
        workspace.publish(bundle, registry.address(f"net:{tag}"))
    repository = f"oci://{registry.host}/net"
    workspace.start_rollout(f"{repository}:1", "kitchen", waves="100%")
    return repository


@pytest.fixture
def boards(registry: RegistryServer, repository: str, tmp_path: Path) -> list[FollowingBoard]:
    program = build_agent(load_toolchain("host"), os.uname().machine).program
    key = tmp_path / "config/edgekit/keys/mine.pub"
    return [
        FollowingBoard(program, tmp_path / f"board-{number}", registry, key, f"board-{number}")
        for number in range(6)
    ]


def test_each_board_takes_what_the_rollout_gives_it(
    boards: list[FollowingBoard],
    repository: str,
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundles: tuple[Bundle, Bundle],
) -> None:
    first, second = bundles
    for board in boards:
        assert board.follow().outcome == "updated"
        assert board.current == first.digest
        record = board.record
        assert record is not None
        assert (record.digest, record.verified, record.board) == (first.digest, True, "local")
        assert record.median is not None
        began = len(registry.log)
        assert board.follow().outcome == "current"
        asked = [line for line in registry.log[began:].splitlines() if "HTTP/1.1" in line]
        assert asked
        assert all('HTTP/1.1" 304' in line for line in asked)

    rollout = workspace.start_rollout(f"{repository}:2", "kitchen", waves="50%,100%")
    taken = {board.name: rollout.version_for(board.name) for board in boards}
    assert {version.tag for version in taken.values() if version} == {"1", "2"}
    size = sum(file.size for file in second.manifest.files)
    for board in boards:
        done, version = board.follow(), taken[board.name]
        assert version is not None
        assert board.current == (first if version.tag == "1" else second).digest
        if version.tag == "2":  # the weights were there
            assert 0 < done.said["received"] <= size - weight_bytes(second.library)

    workspace.move_rollout(repository, "kitchen", "next")
    assert {board.follow().status for board in boards} == {0}
    assert {board.current for board in boards} == {second.digest}
    workspace.move_rollout(repository, "kitchen", "back")
    assert {board.follow().said["outcome"] for board in boards} == {"updated"}
    assert {board.current for board in boards} == {first.digest}


def test_what_was_not_signed_for_the_board_changes_nothing(
    boards: list[FollowingBoard],
    repository: str,
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundles: tuple[Bundle, Bundle],
    tmp_path: Path,
) -> None:
    board, *others = boards
    first, second = bundles
    assert board.follow().outcome == "updated"
    old = registry.document("net:rollout-kitchen")
    workspace.start_rollout(f"{repository}:2", "kitchen", waves="100%")
    new = registry.document("net:rollout-kitchen")

    foreign = replace(board, key=new_key("foreign").file)
    refused = foreign.follow()
    assert (refused.status, "not signed by" in refused.trouble) == (1, True)

    layers = json.loads(registry.document("net:2"))["layers"]
    blob = registry.blob(layers[0]["digest"].removeprefix("sha256:"))
    whole = blob.read_bytes()
    for damaged in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
        blob.write_bytes(damaged)
        assert board.follow().status == 1
        assert board.current == first.digest
    blob.write_bytes(whole)

    registry.put_document(registry.document("net:1"), "net:2")
    refused = board.follow()
    assert (refused.status, "another bundle" in refused.trouble) == (1, True)
    workspace.publish(second, registry.address("net:2"), key="mine")

    assert board.follow().outcome == "updated"
    assert board.current == second.digest
    registry.put_document(old, "net:rollout-kitchen")
    refused = board.follow()
    assert (refused.status, "was seen before" in refused.trouble) == (1, True)
    assert board.current == second.digest

    registry.put_document(new, "net:rollout-kitchen")
    refused = others[0].follow("--channel", "garage")
    assert refused.status != 0
    assert others[0].follow().outcome == "updated"
    registry.stop()
    lost = others[1].follow()
    assert (lost.status, lost.said["kind"], others[1].current) == (1, "network", None)


def wrong(bundle: Bundle, folder: Path, library: Path) -> Bundle:
    """The bundle with another version's library: its outputs are not what was expected."""
    copied(bundle, folder)
    (folder / "model.so").write_bytes(library.read_bytes())
    return resealed(bundle, folder)


@pytest.mark.parametrize("fault", ["crash", "numbers"])
def test_a_version_that_fails_on_the_board_is_not_made_current(
    boards: list[FollowingBoard],
    repository: str,
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundles: tuple[Bundle, Bundle],
    tmp_path: Path,
    fault: str,
) -> None:
    board, first, second = boards[0], *bundles
    assert board.follow().outcome == "updated"
    bad = (
        with_patched_kernels(second, tmp_path / "bad")
        if fault == "crash"
        else wrong(second, tmp_path / "bad", first.library)
    )
    workspace.publish(bad, registry.address("net:bad"))
    workspace.start_rollout(f"{repository}:bad", "kitchen", waves="100%")

    failed = board.follow()
    assert (failed.status, failed.outcome) == (1, "failed")
    assert ("signal 4" if fault == "crash" else "not what was expected") in failed.trouble
    assert board.current == first.digest
    assert board.follow().outcome == "kept"
    workspace.move_rollout(repository, "kitchen", "back")
    assert board.follow().outcome == "current"
    workspace.start_rollout(f"{repository}:2", "kitchen", waves="100%")
    assert board.follow().outcome == "updated"
    assert board.current == second.digest


def test_a_board_goes_back_when_the_application_does_not_start(
    boards: list[FollowingBoard],
    repository: str,
    workspace: edgekit.Workspace,
    bundles: tuple[Bundle, Bundle],
) -> None:
    board, first = boards[0], bundles[0]
    after = (
        f"""case "$(readlink deployments/net/current)" in *{first.digest}) ;; *) exit 1;; esac"""
    )
    assert board.follow("--after", after).outcome == "updated"
    workspace.start_rollout(f"{repository}:2", "kitchen", waves="100%")

    failed = board.follow("--after", after)
    assert (failed.status, failed.outcome) == (1, "failed")
    assert board.current == first.digest


def test_a_board_without_power_goes_on_where_it_was(
    boards: list[FollowingBoard],
    repository: str,
    workspace: edgekit.Workspace,
    bundles: tuple[Bundle, Bundle],
) -> None:
    board, first, second = boards[0], *bundles
    assert board.follow().outcome == "updated"
    workspace.start_rollout(f"{repository}:2", "kitchen", waves="100%")
    chance = random.Random(20)
    for _ in range(12):
        process = subprocess.Popen(board.words(), stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.0, 0.15))
        process.kill()
        process.wait()
        assert board.current in (first.digest, second.digest)

    assert board.follow().outcome in ("updated", "current")
    assert board.current == second.digest
    assert board.follow().outcome == "current"


def test_a_download_that_broke_off_goes_on(
    boards: list[FollowingBoard],
    repository: str,
    registry: RegistryServer,
    bundles: tuple[Bundle, Bundle],
) -> None:
    layers = json.loads(registry.document("net:1"))["layers"]
    weights = max(layers, key=lambda layer: int(layer["size"]))["digest"].removeprefix("sha256:")
    data = registry.blob(weights).read_bytes()
    for board, begun in zip(boards, (data[:100_000], b"not the beginning of it"), strict=False):
        parts = board.root / "follow/parts"
        parts.mkdir(parents=True)
        for folder in (board.root, board.root / "follow"):
            folder.chmod(0o700)
        (parts / f"{weights}.part").write_bytes(begun)
    whole, damaged, *_ = boards

    assert whole.follow().outcome == "updated"
    assert f'{weights} HTTP/1.1" 206 {len(data) - 100_000} ' in registry.log

    refused = damaged.follow()
    assert (refused.status, "other content" in refused.trouble) == (1, True)
    assert damaged.follow().outcome == "updated"
    assert {board.current for board in (whole, damaged)} == {bundles[0].digest}


@needs("mounts")
def test_a_full_disk_keeps_what_is_there(boards: list[FollowingBoard], tmp_path: Path) -> None:
    board = boards[0]
    board.root.mkdir()
    inside = ["unshare", "-rm", "sh", "-c", f'{tmpfs("size=600k")} && shift && exec "$@"', "sh"]
    done = subprocess.run(
        [*inside, str(board.root), *board.words()], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "the disk is full" in json.loads(done.stdout.splitlines()[-1])["error"]
    assert board.follow().outcome == "updated"


def test_a_version_that_ends_the_board_is_given_up(
    boards: list[FollowingBoard], repository: str, workspace: edgekit.Workspace
) -> None:
    rollout = workspace.rollout(repository, "kitchen")
    attempt = f"{rollout.version.manifest} {rollout.counter}"
    for board, tries, outcome in zip(boards, (2, 3), ("updated", "failed"), strict=False):
        (board.root / "follow").mkdir(parents=True, mode=0o700)
        (board.root / "follow/trying").write_text(f"{attempt} {tries} another-start\n")
        assert board.follow().outcome == outcome


@needs("systemd")
def test_systemd_takes_the_units(workspace: edgekit.Workspace, tmp_path: Path) -> None:
    written = workspace.follower("oci://registry.example/net", "kitchen", "board", board="local")
    assert set(written.files) >= {"edgekit-agent", "mine.pub"}
    service = written.path / "edgekit-follow.service"
    # The program's folder is the board's.
    text = service.read_text().replace("/opt/edgekit/edgekit-agent", "/bin/true")
    service.write_text(text)
    units = [service, written.path / "edgekit-follow.timer"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def collector() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL that takes reports, and those that it got."""
    got: list[dict[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/reports", got
    server.shutdown()
    server.server_close()


def test_boards_report_each_outcome_once(
    boards: list[FollowingBoard],
    repository: str,
    registry: RegistryServer,
    workspace: edgekit.Workspace,
    bundles: tuple[Bundle, Bundle],
    tmp_path: Path,
    collector: tuple[str, list[dict[str, Any]]],
) -> None:
    board, (url, got) = boards[0], collector
    assert board.follow("--report", "http://127.0.0.1:9/nobody").outcome == "updated"
    for _ in range(2):  # kept until it can be sent
        assert board.follow("--report", url).outcome == "current"
    workspace.publish(
        with_patched_kernels(bundles[1], tmp_path / "bad"), registry.address("net:bad")
    )
    rollout = workspace.start_rollout(f"{repository}:bad", "kitchen", waves="100%")
    for _ in range(2):
        board.follow("--report", url)

    assert [(one["board"], one["outcome"], one["verified"]) for one in got] == [
        ("board-0", "updated", True),
        ("board-0", "failed", False),
    ]
    assert got[0]["nanoseconds"] > 0
    assert "signal 4" in got[1]["error"]
    assert got[1]["manifest"] == rollout.version.manifest
