"""Rollouts in a real registry: shares, moves, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.needs import needs
from support.registry import RegistryServer

import edgekit
from edgekit.base.errors import RegistryError, SignatureError, UsageError
from edgekit.bundle.folder import Bundle
from edgekit.registry.keys import new_key

pytestmark = needs("docker-registry")
BOARDS = [f"board-{number}" for number in range(2000)]


@pytest.fixture
def repository(registry: RegistryServer, workspace: edgekit.Workspace, bundle: Bundle) -> str:
    """A repository with the bundle as net:1 and net:2."""
    for tag in ("1", "2"):
        workspace.publish(bundle, registry.address(f"net:{tag}"))
    return f"oci://{registry.host}/net"


def test_each_wave_takes_its_share_and_keeps_those_before(
    repository: str, workspace: edgekit.Workspace
) -> None:
    rollout = workspace.start_rollout(f"{repository}:1", "kitchen", waves="10%,50%,100%")
    taken: list[set[str]] = []
    for _ in range(3):
        assert workspace.rollout(repository, "kitchen") == rollout
        taken.append({board for board in BOARDS if rollout.version_for(board)})
        if len(taken) < 3:
            rollout = workspace.move_rollout(repository, "kitchen", "next")

    assert taken[0] < taken[1] < taken[2] == set(BOARDS)
    assert 0.07 < len(taken[0]) / len(BOARDS) < 0.13
    assert 0.45 < len(taken[1]) / len(BOARDS) < 0.55
    assert rollout.counter == 3
    with pytest.raises(UsageError, match="the last wave"):
        workspace.move_rollout(repository, "kitchen", "next")


def test_a_rollout_is_taken_back_to_the_version_before(
    repository: str, workspace: edgekit.Workspace
) -> None:
    first = workspace.start_rollout(f"{repository}:1", "kitchen", waves="100%")
    second = workspace.start_rollout(f"{repository}:2", "kitchen", waves="1%,100%")
    tags = {board: second.version_for(board) for board in BOARDS}
    assert {version.tag for version in tags.values() if version} == {"1", "2"}

    with pytest.raises(UsageError, match="in the middle of a rollout of 2"):
        workspace.start_rollout(f"{repository}:1", "kitchen")
    paused = workspace.move_rollout(repository, "kitchen", "pause")
    assert (paused.state, paused.share) == ("paused", 100)
    with pytest.raises(UsageError, match="is paused"):
        workspace.move_rollout(repository, "kitchen", "next")
    assert workspace.move_rollout(repository, "kitchen", "resume").state == "running"
    back = workspace.move_rollout(repository, "kitchen", "back")

    assert {back.version_for(board) for board in BOARDS} == {first.version}
    with pytest.raises(UsageError, match="was taken back"):
        workspace.move_rollout(repository, "kitchen", "resume")
    again = workspace.start_rollout(f"{repository}:2", "kitchen", waves="1%,100%")
    assert again.before == first.version


def test_older_and_foreign_rollouts_are_refused(
    repository: str, registry: RegistryServer, workspace: edgekit.Workspace
) -> None:
    workspace.start_rollout(f"{repository}:1", "kitchen")
    old = registry.document("net:rollout-kitchen")
    workspace.move_rollout(repository, "kitchen", "back")
    registry.put_document(old, "net:rollout-kitchen")
    for refused in (
        lambda: workspace.rollout(repository, "kitchen"),
        lambda: workspace.move_rollout(repository, "kitchen", "next"),
    ):
        with pytest.raises(SignatureError, match="holds publication 1, and 2 was seen"):
            refused()

    registry.put_document(old, "net:rollout-garage")
    with pytest.raises(SignatureError, match="signed for 'net', channel 'kitchen'"):
        workspace.rollout(repository, "garage")
    registry.put_document(registry.document("net:1"), "net:rollout-garage")
    with pytest.raises(SignatureError, match="can't read"):
        workspace.rollout(repository, "garage")
    registry.put_document(old, "net:1")
    with pytest.raises(SignatureError, match="can't read"):
        workspace.fetch(f"{repository}:1", "fetched")


def test_another_key_has_no_say(
    repository: str, workspace: edgekit.Workspace, tmp_path: Path
) -> None:
    new_key("other")
    with pytest.raises(SignatureError, match="not signed by the key other"):
        workspace.start_rollout(f"{repository}:1", "kitchen", key="other")
    workspace.start_rollout(f"{repository}:1", "kitchen", key="mine")
    with pytest.raises(SignatureError, match="not signed by the key other"):
        workspace.move_rollout(repository, "kitchen", "back", key="other")
    with pytest.raises(RegistryError, match="has no rollout"):
        workspace.rollout(repository, "garage", key="mine")


def test_a_bundle_that_was_not_published_is_not_rolled_out(
    repository: str, workspace: edgekit.Workspace
) -> None:
    with pytest.raises(RegistryError, match="has no net:9"):
        workspace.start_rollout(f"{repository}:9", "kitchen")
