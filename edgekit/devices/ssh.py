"""A Linux board over SSH as a device: what is missing there is pushed, and the agent runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.devices.agent_messages import AgentInfo
from edgekit.devices.base import Installed
from edgekit.devices.connection import Connection, connect
from edgekit.devices.device_log import who
from edgekit.devices.lease import Lease, lease
from edgekit.devices.local import DEFAULT_TIMEOUT_SECONDS
from edgekit.devices.preflight import check_libraries, check_machine
from edgekit.devices.probe import DeviceFacts, ask_device, check_place
from edgekit.devices.ssh_session import LIBRARY, ReadyAgent, SshSession, library_entry
from edgekit.devices.transfer import Item, Store
from edgekit.errors import DeviceError
from edgekit.events import SILENT, Events

if TYPE_CHECKING:
    from edgekit.agent.build import Agent
    from edgekit.bundle import Bundle
    from edgekit.cross.toolchain import Toolchain
    from edgekit.device_entry import DeviceEntry
    from edgekit.devices.hostkeys import KnownHosts


@dataclass(frozen=True)
class SshDevice:
    """A session is one connection, and has the device to itself."""

    entry: DeviceEntry
    toolchain: Toolchain
    """What the agent is compiled with."""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    """Seconds without a sign of life."""
    known_hosts: KnownHosts | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.entry.name)

    @contextmanager
    def opened(self, bundle: Bundle, *, events: Events = SILENT) -> Iterator[SshSession]:
        with self._reached(events, bundle) as place:
            sent = place.have_agent(events)
            library = library_entry(bundle)
            item = Item(bundle.library, LIBRARY, library.sha256, library.size)
            folder = f"models/{bundle.digest}"
            sent += place.have([item], folder, "the model", events)
            yield SshSession(
                place.ready_agent,
                bundle,
                place.store.path(folder, LIBRARY),
                _installed(place.agent, item.size, sent),
                events,
            )

    @contextmanager
    def with_agent(self, *, events: Events = SILENT) -> Iterator[ReadyAgent]:
        """The device with the agent on it and no model, ours for the time of the block."""
        with self._reached(events) as place:
            place.have_agent(events)
            yield place.ready_agent

    def info(self, *, events: Events = SILENT) -> AgentInfo:
        """What the agent on the device says of the device."""
        with self.with_agent(events=events) as agent:
            return agent.info()

    @contextmanager
    def _reached(self, events: Events, bundle: Bundle | None = None) -> Iterator[_Place]:
        """The device, connected and ours."""
        from edgekit.agent.build import build_agent

        with connect(self.entry, known_hosts=self.known_hosts) as connection:
            facts = ask_device(connection, self.entry.directory)
            if bundle is not None:
                check_machine(bundle, facts, self.name)
            self._check_board(facts)
            check_place(facts, self.name)
            agent = build_agent(self.toolchain, facts.machine, events=events)
            with lease(
                connection, facts.root, wait=self.timeout, user=who(), events=events
            ) as leased:
                store = Store(connection, facts)
                yield _Place(connection, facts, store, agent, leased, self.timeout)

    def _check_board(self, facts: DeviceFacts) -> None:
        arch = self.toolchain.triple.partition("-")[0]
        if arch != facts.machine:
            raise DeviceError(
                f"{self.name} is a {facts.machine} machine, and its board {self.entry.board} is "
                f"an {arch} one",
                hint=f"add it again with the right board: edgekit device add {self.name} --board …",
            )


@dataclass(frozen=True)
class _Place:
    """A device that is ours, and what is to be there."""

    connection: Connection
    facts: DeviceFacts
    store: Store
    agent: Agent
    leased: Lease
    timeout: float

    @property
    def _agent_folder(self) -> str:
        return f"agents/{self.agent.digest}"

    @property
    def ready_agent(self) -> ReadyAgent:
        program = self.store.path(self._agent_folder, "edgekit-agent")
        return ReadyAgent(self.connection, self.facts.root, program, self.leased, self.timeout)

    def have_agent(self, events: Events) -> int:
        items = [
            Item(f.path, f.path.name, f.sha256, f.size, f.executable) for f in self.agent.files
        ]
        return self.have(items, self._agent_folder, "the agent", events)

    def have(self, items: list[Item], folder: str, what: str, events: Events) -> int:
        """Push what is not there; the bytes that were sent."""
        if self.store.has(folder, items):
            return 0
        ours = frozenset(file.path.name for file in self.agent.files)
        code = [item.source for item in items if _is_code(item.name)]
        check_libraries(code, self.facts, self.connection, ours)
        return self.store.push(items, folder, events=events, what=what).bytes_sent


def _installed(agent: Agent, model: int, sent: int) -> Installed:
    runtime = sum(file.size for file in agent.files if ".so" in file.path.name)
    return Installed(agent.size - runtime, runtime, model, sent)


def _is_code(name: str) -> bool:
    return name == "edgekit-agent" or ".so" in name
