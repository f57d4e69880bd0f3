"""Fleets: boards that report, rollouts that go on and stop by themselves, in a real registry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.building import tmpfs
from support.collector import HUNG_UP, post, running_collector
from support.following import FollowingBoard
from support.needs import needs
from support.registry import RegistryServer, running_registry
from support.registry_login import PASSWORD, USER, make_certificate, token_server

import edgekit
from edgekit.agent.build import build_agent
from edgekit.bundle.folder import Bundle
from edgekit.profiles.toolchain import load_toolchain
from edgekit.registry.rollout import Rollout

pytestmark = [needs("docker-registry"), needs("curl")]


@pytest.fixture
def collector() -> Iterator[str]:
    with running_collector() as url:
        yield url


@pytest.fixture
def repository(
    registry: RegistryServer, workspace: edgekit.Workspace, bundles: tuple[Bundle, Bundle]
) -> str:
    for tag, bundle in zip(("1", "2"), bundles, strict=True):
        workspace.publish(bundle, registry.address(f"net:{tag}"))
    return f"oci://{registry.host}/net"


@pytest.fixture
def board(registry: RegistryServer, tmp_path: Path) -> FollowingBoard:
    program = build_agent(load_toolchain("host"), os.uname().machine).program
    key = tmp_path / "config/edgekit/keys/mine.pub"
    return FollowingBoard(program, tmp_path / "boards/board", registry, key, "board")


def boards_between(
    board: FollowingBoard, rollout: Rollout, begin: int, end: int, count: int
) -> list[FollowingBoard]:
    """Boards whose places in the channel lie in a range, in hundredths of a percent."""
    board.root.parent.mkdir(exist_ok=True)
    names = (f"board-{number}" for number in range(100_000))
    fitting = (name for name in names if begin <= rollout.place_of(name) < end)
    chosen = [next(fitting) for _ in range(count)]
    return [replace(board, name=name, root=board.root.parent / name) for name in chosen]


def test_a_version_that_crashes_on_three_of_ten_boards_stops_by_itself(
    repository: str, workspace: edgekit.Workspace, board: FollowingBoard, collector: str
) -> None:
    rollout = workspace.start_rollout(
        f"{repository}:1", "kitchen", waves="10%,50%,100%", healthy_after=1, max_failures="20%"
    )
    waiting = workspace.tend_rollout(repository, "kitchen")
    assert (waiting.move, "no board" in waiting.reason) == (None, True)

    def follow(boards: list[FollowingBoard], after: str) -> set[str | None]:
        return {one.follow("--report", collector, "--after", after).outcome for one in boards}

    first = boards_between(board, rollout, 0, 1000, 5)
    assert follow(first, "true") == {"updated"}
    tended = workspace.tend_rollout(repository, "kitchen")
    while tended.move is None:
        assert tended.reason.startswith("the wave has to stay healthy")
        tended = workspace.tend_rollout(repository, "kitchen")
    assert (tended.move, tended.rollout.wave, tended.tally.healthy) == ("next", 1, 5)
    assert tended.tally.median_nanoseconds is not None
    assert workspace.rollout(repository, "kitchen") == tended.rollout

    second = boards_between(board, rollout, 1000, 5000, 5)
    assert follow(second[:2], "true") == {"updated"}
    assert follow(second[2:], "kill -SEGV $$") == {"failed"}
    stopped = workspace.tend_rollout(repository, "kitchen")
    assert (stopped.move, stopped.rollout.state) == ("stop", "stopped")
    assert stopped.reason == "3 of 10 boards that reported failed"
    assert [(wave.healthy, wave.failed) for wave in stopped.tally.waves] == [(5, 0), (2, 3), (0, 0)]
    assert [error.boards for error in stopped.tally.errors] == [3]
    assert [digest.boards for digest in stopped.tally.digests] == [7]

    assert follow(boards_between(board, rollout, 5000, 10_000, 1), "true") == {"nothing"}
    again = workspace.tend_rollout(repository, "kitchen")
    assert (again.move, again.is_over, again.rollout) == (None, True, stopped.rollout)


def test_two_rollouts_at_once(
    repository: str,
    workspace: edgekit.Workspace,
    board: FollowingBoard,
    bundles: tuple[Bundle, Bundle],
    collector: str,
) -> None:
    for tag, channel in (("1", "kitchen"), ("2", "garage")):
        workspace.start_rollout(
            f"{repository}:{tag}", channel, waves="50%,100%", healthy_after=1, max_failures="0%"
        )
    rollouts = {name: workspace.rollout(repository, name) for name in ("kitchen", "garage")}
    for (channel, rollout), bundle, after in zip(
        rollouts.items(), bundles, ("true", "false"), strict=True
    ):
        (one,) = boards_between(board, rollout, 0, 5000, 1)
        one = replace(one, channel=channel, root=one.root.with_name(channel))
        one.follow("--report", collector, "--after", after)
        assert one.current == (bundle.digest if after == "true" else None)

    garage = workspace.tend_rollout(repository, "garage")
    assert (garage.move, garage.tally.healthy, garage.tally.failed) == ("stop", 0, 1)
    kitchen = workspace.tend_rollout(repository, "kitchen")
    assert (kitchen.tally.healthy, kitchen.tally.failed) == (1, 0)
    assert kitchen.rollout.state == "running"


@needs("faketime")
@pytest.mark.parametrize("day", ["2001-01-01", "2099-01-01"])
def test_a_clock_that_is_wrong_by_years(
    repository: str,
    workspace: edgekit.Workspace,
    board: FollowingBoard,
    bundles: tuple[Bundle, Bundle],
    collector: str,
    day: str,
) -> None:
    wrong = replace(board, root=board.root.with_name("late"), run_by=("faketime", day))
    wrong.root.parent.mkdir()
    for tag, bundle in zip(("1", "2"), bundles, strict=True):
        workspace.start_rollout(f"{repository}:{tag}", "kitchen", waves="100%", healthy_after=1)
        assert wrong.follow("--report", collector).outcome == "updated"
        assert wrong.current == bundle.digest
        assert wrong.follow("--report", collector).outcome == "current"
        assert workspace.tend_rollout(repository, "kitchen").tally.healthy == 1


@needs("mounts")
def test_a_board_with_a_full_disk_says_so(
    repository: str, workspace: edgekit.Workspace, board: FollowingBoard, collector: str
) -> None:
    workspace.start_rollout(f"{repository}:1", "kitchen", waves="100%", max_failures=None)
    board.root.mkdir(parents=True, mode=0o700)
    inside = ("unshare", "-rm", "sh", "-c", f'{tmpfs("size=600k")} && shift && exec "$@"', "sh")
    full = replace(board, run_by=(*inside, str(board.root)))
    done = full.follow("--report", collector)
    assert (done.status, "the disk is full" in done.trouble) == (1, True)
    tended = workspace.tend_rollout(repository, "kitchen")
    assert (tended.move, tended.tally.failed) == (None, 1)
    assert "the disk is full" in tended.tally.errors[0].text

    assert board.follow("--report", collector).outcome == "updated"
    assert workspace.tend_rollout(repository, "kitchen").tally.healthy == 1


def test_a_collector_takes_reports_and_nothing_else(tmp_path: Path) -> None:
    report = {
        "name": "net",
        "channel": "kitchen",
        "board": "b",
        "manifest": "ab" * 32,
        "counter": 1,
        "outcome": "failed",
        "verified": False,
        "error": "signal 4",
    }
    good = json.dumps(report).encode()
    word = "a-word-that-is-long-enough"
    (tmp_path / "token").write_text(f"{word}\n")
    file = tmp_path / "kept/reports.sqlite"
    with running_collector("--token", str(tmp_path / "token"), "--reports", str(file)) as url:
        login = {"Authorization": f"Bearer {word}"}
        assert post(url, good)[0] == 401
        assert post(url, good, {"Authorization": "Bearer another"})[0] == 401
        assert post(url, good, {**login, "Content-Type": "text/plain"})[0] == 415
        assert post(url, good, login) == (204, "")
        for bad in (b"", b"[]", b"\xff", good[:-1], b"[" * 10_000, b'{"name": "net"}'):
            status, said = post(url, bad, login)
            assert (status, said.startswith("This is no report: ")) == (400, True)
            assert "Traceback" not in said
        assert post(url, good + b" " * 100_000, login)[0] in (HUNG_UP, 400, 413)
        assert post(url.replace("/reports", "/other"), good, login)[0] == 404
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_board_takes_a_token_where_the_registry_hands_them_out(
    workspace: edgekit.Workspace,
    board: FollowingBoard,
    bundles: tuple[Bundle, Bundle],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEKIT_REGISTRY_USER", USER)
    monkeypatch.setenv("EDGEKIT_REGISTRY_PASSWORD", PASSWORD)
    login = tmp_path / "login"
    login.write_text(f'user = "{USER}:{PASSWORD}"\n')
    with (
        token_server(make_certificate(tmp_path), tmp_path) as settings,
        running_registry(tmp_path / "guarded", **settings) as guarded,
    ):
        workspace.publish(bundles[0], guarded.address("net:1"))
        workspace.start_rollout(guarded.address("net:1"), "kitchen", waves="100%")
        board.root.parent.mkdir()
        asked = replace(board, registry=guarded)
        assert asked.follow().status == 1
        began = len((tmp_path / "tokens").read_text().splitlines())
        assert asked.follow("--curl-config", str(login)).outcome == "updated"
        assert asked.follow("--curl-config", str(login)).outcome == "current"
        assert len((tmp_path / "tokens").read_text().splitlines()) == began + 1
        token = board.root / "follow/token"
        assert token.stat().st_mode & 0o777 == 0o600
        token.write_text('header = "Authorization: Bearer old"\n')
        assert asked.follow("--curl-config", str(login)).outcome == "current"
