"""A folder of this machine that follows a channel as a board does."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.devices.linux.version_records import VersionRecord, parse_record
from support.registry import RegistryServer


@dataclass(frozen=True)
class Outcome:
    status: int
    said: dict[str, Any]

    @property
    def outcome(self) -> str | None:
        return self.said.get("outcome")

    @property
    def trouble(self) -> str:
        return str(self.said.get("error", self.said.get("reason", "")))


@dataclass(frozen=True)
class FollowingBoard:
    """A board's folder, and the program that follows a channel in it."""

    program: Path
    root: Path
    registry: RegistryServer
    key: Path
    name: str
    channel: str = "kitchen"
    run_by: tuple[str, ...] = ()
    """A program with its options that runs the agent."""

    def words(self, *more: str) -> list[str]:
        return [
            *(*self.run_by, str(self.program), "follow", "--plain-http", "--key", str(self.key)),
            *("--channel", self.channel, "--name", self.name, "--board", "local", *more),
            *(str(self.root), f"oci://{self.registry.host}/net"),
        ]

    def follow(self, *more: str) -> Outcome:
        done = subprocess.run(self.words(*more), capture_output=True, text=True, timeout=120)
        return Outcome(done.returncode, json.loads(done.stdout.splitlines()[-1]))

    @property
    def current(self) -> str | None:
        """The digest of the current version, whose files are all there."""
        link = self.root / "deployments/net/current"
        if not link.is_symlink():
            return None
        assert (link / "model.so").stat().st_size > 0
        return link.readlink().name

    @property
    def record(self) -> VersionRecord | None:
        file = self.root / f"deployments/net/{self.current}.version"
        return parse_record(file.read_text().splitlines()[1])
