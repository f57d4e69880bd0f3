"""A device that serves TVM's RPC: its agent, through one SSH connection, while this process runs.

    client  -> port of this host      -> SSH -> the agent's port
    tracker <- this process           -> SSH -> the agent's port for its tracker

The tracker tells clients the port of this host, so that TVM's stock clients work without SSH. All
ports admit their own user only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.signals import signal_meaning
from edgekit.devices.linux.agent_messages import AgentMessages, ServerState
from edgekit.devices.linux.forwarding import LocalForward, bring
from edgekit.devices.linux.hostkeys import UntrustedHostKey
from edgekit.devices.linux.remote_command import Finished, guarded
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, show
from edgekit.rpc.protocol import LOOPBACK, TrackerAddress, TrackerClient
from edgekit.rpc.versions import check_versions

if TYPE_CHECKING:
    from edgekit.devices.device import RunsAgent
    from edgekit.devices.linux.connection import Connection

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
_SESSIONS_THAT_END_WELL = ("ended",)


@dataclass(frozen=True)
class ServePlan:
    device: RunsAgent
    key: str
    """The key that clients ask the tracker for."""
    tracker: TrackerAddress | None
    """The tracker to register with; None if clients connect directly."""
    port: int = 0
    """The port of this host that leads to the device; 0 takes any."""

    def __post_init__(self) -> None:
        # In TVM a colon ends a key, and a space starts an option.
        if not NAME_PATTERN.fullmatch(self.key):
            raise UsageError(f"{show(self.key)} cannot be a key", hint=f"choose {NAME_EXPECTED}")


@dataclass(frozen=True)
class Serving:
    """A device that is ready."""

    device: str
    key: str
    tracker: TrackerAddress | None
    host: str
    port: int
    tvm: str
    """The version of TVM on the device."""
    measured_by: Measurer
    """What measures on the device, as it says itself."""


@dataclass(frozen=True)
class ServingEvent:
    """A change of a device that serves."""

    state: Literal["up", "in use", "free", "no tracker", "refused"]
    detail: str = ""
    """The end of the session, the reason for 'no tracker', or the user who was refused."""
    port: int = 0
    """The port of this host that leads to the device, if it is up."""
    offer: str = ""
    """The tracker's offer that the session came with."""
    is_emulated: bool | None = None
    """Whether the device, which is up, says that it is emulated."""


def serve_until_lost(
    plan: ServePlan,
    changed: Callable[[ServingEvent], None],
    during: Callable[[Connection], AbstractContextManager[None]],
    events: Events = SILENT,
) -> None:
    """Serve until the device, its agent or the connection is lost, which raises DeviceError.
    `during` is entered with the connection, for other work over it."""
    server = _Server(plan, lambda serving: None, events, changed, during)
    server.serve_once()


def serve_device(
    plan: ServePlan, *, started: Callable[[Serving], None], events: Events = SILENT
) -> None:
    """Serve until interrupted; retry a device that is lost until it is back.

    Call `started` each time the device is ready. Errors before the first time are raised; after
    that, only a changed host key is.
    """
    if plan.tracker is not None:
        with TrackerClient(plan.tracker):
            pass  # it answers
    server = _Server(plan, started, events)
    wait = _FIRST_WAIT
    while True:
        server.is_up = False
        try:
            server.serve_once()
        except UntrustedHostKey:
            raise
        except DeviceError as error:
            if not server.was_up:
                raise
            reason = error.message
        if server.is_up:
            wait = _FIRST_WAIT
        events.warn(f"{reason}; trying again in {wait:g} s")
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT)


@dataclass
class _Server:
    plan: ServePlan
    started: Callable[[Serving], None]
    events: Events
    changed: Callable[[ServingEvent], None] = lambda event: None
    during: Callable[[Connection], AbstractContextManager[None]] = lambda connection: nullcontext()
    is_up: bool = False
    was_up: bool = False
    _port: int = field(init=False)

    def __post_init__(self) -> None:
        self._port = self.plan.port

    def serve_once(self) -> None:
        """Serve until the connection or the agent ends, which raises DeviceError."""
        plan = self.plan
        device = plan.device.found_again()
        with device.with_agent(runtime=True, events=self.events) as agent, ExitStack() as closing:
            connection = agent.connection
            info = agent.info()
            check_versions(info.tvm, info.tvm_ffi, device.name)
            with self._forwarded(connection) as forward:
                serving = Serving(
                    device.name, plan.key, plan.tracker, LOOPBACK, forward.port, info.tvm,
                    agent.measured_by,
                )  # fmt: skip
                follower = _AgentFollower(self, connection, forward, serving)
                words = [
                    *(agent.program_with_runtime, "serve", "--key", plan.key, "--end-with-parent"),
                    *("--workspace", agent.scratch),
                ]
                if plan.tracker is not None:
                    words += ["--tracker-dials", "--custom-addr", LOOPBACK]
                    words += ["--custom-port", str(forward.port)]
                closing.enter_context(self.during(connection))
                with connection.command(guarded(words), listens=True) as command:
                    done = command.finish(on_line=follower.take)
        raise self._agent_ended(done, follower.messages)

    @contextmanager
    def _forwarded(self, connection: Connection) -> Iterator[LocalForward]:
        """Forward a port of this host; keep its number for the next connection."""
        try:
            forward = LocalForward(connection, (LOOPBACK, 0), self._port, self.refused)
        except OSError as error:
            raise DeviceError(
                f"port {self._port} of this host cannot be used for {connection.name}: "
                f"{(error.strerror or str(error)).lower()}",
                hint=f"choose another {option('port')}, or leave it out",
            ) from error
        self._port = forward.port
        try:
            yield forward
        finally:
            forward.close()

    def refused(self, reason: str) -> None:
        self.events.warn(f"{self.plan.device.name}: {reason}")
        self.changed(ServingEvent("refused", reason))

    def _agent_ended(self, done: Finished, messages: AgentMessages) -> DeviceError:
        if messages.error is not None:
            how = messages.error
        elif done.signal is not None:
            how = signal_meaning(done.signal)
        else:
            how = f"exit code {done.status}"
        return DeviceError(
            f"the agent on {self.plan.device.name} ended: {how}",
            hint="check the device's memory and system log",
            details=done.errors[-12:],
        )


class _AgentFollower:
    """The reaction to the agent's messages while it serves."""

    def __init__(
        self, server: _Server, connection: Connection, forward: LocalForward, serving: Serving
    ) -> None:
        self._server = server
        self._connection = connection
        self._forward = forward
        self._serving = serving
        self.messages = AgentMessages()
        self._without_tracker = False

    def take(self, line: str) -> None:
        message = self.messages.take(line)
        if isinstance(message, ServerState):
            self._react(message)

    def _react(self, message: ServerState) -> None:
        state, port, reason = message.state, message.port, message.reason
        name, events = self._serving.device, self._server.events
        if state == "listening" and port is not None:
            self._forward.lead_to(port)
            if self._serving.tracker is None:
                self._up()
        elif state == "wants tracker" and port is not None:
            self._bring_tracker(port)
        elif state == "registered":
            self._up()
        elif state == "no tracker":
            tell = events.note if self._without_tracker else events.warn
            tell(f"{name} does not reach the tracker and keeps trying: {reason}")
            self._without_tracker = True
            self._server.changed(ServingEvent("no tracker", reason))
        elif state == "in use":
            events.note(f"{name} is in use")
            self._server.changed(ServingEvent("in use", offer=message.offer))
        elif state == "free":
            ending = message.session
            tell = events.note if ending in _SESSIONS_THAT_END_WELL else events.warn
            tell(f"{name} is free again; its session: {ending}")
            self._server.changed(ServingEvent("free", ending))
        elif state == "turned away":
            self._server.refused(reason)
        elif state == "refused":
            events.note(f"{name} refused a client: {reason}")

    def _bring_tracker(self, port: int) -> None:
        tracker = self._serving.tracker
        if tracker is not None:
            ends = (self._connection, tracker.port, (LOOPBACK, port))
            threading.Thread(target=bring, args=ends, daemon=True).start()

    def _up(self) -> None:
        self._without_tracker = False
        self._server.is_up = True
        self._server.was_up = True
        self._server.started(self._serving)
        is_emulated = self._serving.measured_by == "emulator"
        up = ServingEvent("up", port=self._serving.port, is_emulated=is_emulated)
        self._server.changed(up)
