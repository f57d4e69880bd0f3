"""A device of this host's farm, as its keeper knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.devices.keeper_messages import DeviceStatus, Lease
from edgekit.farm import health
from edgekit.farm.health import Health
from edgekit.farm.plan import FarmPlan, Member
from edgekit.farm.turns import Turns
from edgekit.farm.worker_process import WorkerProcess


@dataclass
class OwnDevice:
    member: Member
    plan: FarmPlan
    health: Health
    worker: WorkerProcess | None = None
    port: int = 0
    offer: str = ""
    """The tracker's offer that the running session came with."""
    leases: dict[str, Lease] = field(default_factory=dict)
    """Leases by the tracker's offer: a lease may arrive before its session does."""
    turns: Turns = field(default_factory=Turns)
    is_emulated: bool | None = field(init=False)
    """Whether it is a twin of this host, or said when it came up that it is emulated."""
    load: float | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        self.is_emulated = self.member.is_emulated or None

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def lease(self) -> Lease | None:
        if not self.member.key or self.turns.holder is not None:
            return self.turns.lease
        return self.leases.get(self.offer) if self._has_session else None

    @property
    def wants_worker(self) -> bool:
        return self.health.wants_worker and not self._is_withheld

    @property
    def wants_no_worker(self) -> bool:
        """Whether a worker that runs has to end; a session of the tracker's client ends first."""
        withheld = self._is_withheld and not self._has_session
        return withheld or self.health.state in ("drained", "quarantined")

    @property
    def can_be_lent(self) -> bool:
        """Whether a client may have the device now, as far as the tracker is concerned: the worker
        holds a device that the tracker hands out."""
        return not self.member.key or self.worker is None

    @property
    def _is_withheld(self) -> bool:
        """Whether the tracker may not hand out the device: it is lent or reserved, or is to be."""
        turns = self.turns
        waits = any(turns.admits(request.user) for request in turns.waiting)
        return bool(self.member.key) and (
            waits or turns.holder is not None or turns.reservation is not None
        )

    @property
    def _has_session(self) -> bool:
        return self.health.state in ("busy", "draining")

    def command(self, tracker_port: int) -> tuple[str, ...]:
        words = (self.name, str(self.plan.project or ""), self.member.key)
        return (*self.plan.worker, *words, str(tracker_port), str(self.port))

    def status(self, held_by: Callable[[str], int]) -> DeviceStatus:
        state, turns = self.health, self.turns
        shown = state.state
        if turns.holder is not None and shown in ("free", "starting", "drained"):
            shown = "draining" if shown == "drained" else "busy"
        elif shown in ("free", "starting") and turns.reservation is not None:
            shown = "reserved"
        return DeviceStatus(
            name=self.name,
            board=self.member.board,
            key=self.member.key,
            state=shown,
            since=turns.since if turns.holder is not None else state.since,
            reason=state.reason,
            again_at=state.again_at,
            port=self.port if state.state in ("free", "busy", "draining") else 0,
            sessions=state.sessions,
            faults=len(state.faults),
            lease=self.lease,
            load=self.load,
            temperature=self.temperature,
            is_emulated=self.is_emulated,
            address=self.member.address,
            queue=turns.waiters(held_by),
            reservation=turns.reservation,
        )

    def take(self, message: Mapping[str, Any], now: float) -> str | None:
        """Take a message of its worker; return what people should hear of it."""
        state = message.get("state")
        if state == "up":
            self.port = int(message.get("port", 0))
            self.is_emulated = self.member.is_emulated or bool(message.get("is_emulated"))
            self.health = health.came_up(self.health, now)
            return "is up"
        if state == "in use":
            self.offer = str(message.get("offer", ""))
            self.health = health.was_taken(self.health, now)
        elif state == "free":
            self.leases.pop(self.offer, None)
            self.offer = ""
            self.health = health.was_given_back(self.health, now)
        elif state == "vitals":
            self.load = message.get("load")
            self.temperature = message.get("temperature")
        return None

    def was_lost(self, reason: str, now: float) -> None:
        self.health = health.was_lost(self.health, reason, now, self.plan.limits)

    def worker_ended(self) -> None:
        self.offer = ""
        self.leases.clear()
