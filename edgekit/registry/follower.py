"""Writes what a board needs to follow a channel by itself: a program, a key, and a timer."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edgekit.agent.build import build_agent
from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import replace_directory, storage_errors
from edgekit.base.quoting import systemd_command
from edgekit.profiles.board import Board
from edgekit.profiles.toolchain import Toolchain
from edgekit.registry.address import SCHEME, Address
from edgekit.registry.keys import PublicKey

FOLDER = "/opt/edgekit"
"""The folder on the board for the files."""
STATE = "/var/lib/edgekit"
"""The folder on the board for versions: the service's own."""
UNIT = "edgekit-follow"

_SERVICE = """\
[Unit]
Description=Follow the channel {channel} of {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={command}
StateDirectory=edgekit
Nice=10
ProtectHome=yes
PrivateTmp=yes
NoNewPrivileges=yes
"""

_TIMER = """\
[Unit]
Description=Follow the channel {channel} of {name} every {minutes} minutes

[Timer]
OnBootSec=1min
OnUnitInactiveSec={minutes}min
# Boards that start together do not ask together.
RandomizedDelaySec={minutes}min

[Install]
WantedBy=timers.target
"""


@dataclass(frozen=True)
class Follower:
    """The files that a board needs to follow a channel."""

    path: Path
    board: str
    channel: str
    files: tuple[str, ...]
    command: tuple[str, ...]
    """The command that the timer runs on the board."""


def write_follower(
    place: Address,
    out: Path,
    board: tuple[Board, Toolchain],
    key: PublicKey,
    *,
    minutes: int,
    report: str | None = None,
    plain_http: bool = False,
    events: Events = SILENT,
) -> Follower:
    """Write a new folder with what a board needs to follow the channel of a rollout's address."""
    profile, toolchain = board
    if not profile.has_os or profile.in_engine:
        raise UsageError(
            f"the board {profile.name} runs no programs of Linux",
            hint="name the board of a Linux device: edgekit boards lists them",
        )
    if report is not None and not _is_url(report):
        raise UsageError(
            f"{report[:80]!r} is no URL that takes reports",
            hint="write https://HOST/reports, as `edgekit rollout collect` says",
        )
    if out.exists():
        raise UsageError(f"{out} exists already", hint="name a new folder")
    agent = build_agent(toolchain, profile.cpu.arch, events=events)
    channel = place.tag.removeprefix("rollout-")
    public = f"{key.name}.pub"
    command = (
        *(f"{FOLDER}/{agent.program.name}", "follow", "--key", f"{FOLDER}/{public}"),
        *("--channel", channel, "--board", profile.name),
        *(("--report", report) if report else ()),
        *(("--plain-http",) if plain_http else ()),
        *(STATE, f"{SCHEME}{place.host}/{place.name}"),
    )
    words = {"channel": channel, "name": place.name, "minutes": minutes}
    with storage_errors("write the folder", out), replace_directory(out) as folder:
        shutil.copy2(agent.program, folder / agent.program.name)
        shutil.copyfile(key.file, folder / public)
        service = _SERVICE.format(command=systemd_command(command), **words)
        (folder / f"{UNIT}.service").write_text(service, encoding="utf-8")
        (folder / f"{UNIT}.timer").write_text(_TIMER.format(**words), encoding="utf-8")
        files = tuple(sorted(file.name for file in folder.iterdir()))
    return Follower(out, profile.name, channel, files, command)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable()
