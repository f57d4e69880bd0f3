"""What a farm is to have, before any of it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.children import module_command
from edgekit.farm.health import Limits
from edgekit.rpc.protocol import DEFAULT_PORT


@dataclass(frozen=True)
class Member:
    name: str
    board: str
    key: str
    """Empty where TVM's tracker can't hand it out."""


@dataclass(frozen=True)
class FarmPlan:
    members: tuple[Member, ...]
    project: Path | None = None
    """The file that knows the devices, beside the user's own."""
    port: int = DEFAULT_PORT
    """Of the tracker, where none runs yet."""
    limits: Limits = field(default_factory=Limits)
    worker: tuple[str, ...] = field(default_factory=lambda: module_command("edgekit.farm.worker"))
    """What serves a device: a program, and the first of its words."""
