"""A Linux board over SSH as a device: what is missing there is pushed, and the agent runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edgekit.agent.build import AGENT, Agent, build_agent
from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.devices.base import Installed
from edgekit.devices.linux.agent_messages import AgentInfo, AgentMessages
from edgekit.devices.linux.arrival import Arrival, Arrived
from edgekit.devices.linux.attendant import Attendant, attending
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.device_log import holder
from edgekit.devices.linux.lease import Lease, lease
from edgekit.devices.linux.preflight import check_libraries, check_machine
from edgekit.devices.linux.probe import Processor, ask_device
from edgekit.devices.linux.ready_agent import ReadyAgent
from edgekit.devices.linux.runner_build import CompiledThere, compile_there, library_of
from edgekit.devices.linux.ssh_session import LIBRARY, SshSession, name_there
from edgekit.devices.linux.transfer import Item, Store
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.linux.hostkeys import KnownHosts
    from edgekit.profiles.toolchain import Toolchain
    from edgekit.project.devices import DeviceEntry


@dataclass(frozen=True)
class SshDevice:
    """A session is one connection, and has the device to itself."""

    entry: DeviceEntry
    toolchain: Toolchain
    """What the agent is compiled with."""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    """Seconds without a sign of life."""
    known_hosts: KnownHosts | None = None
    arrival: Arrival | None = None
    """The way there, where that was begun before the device is needed."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.entry.name)

    @contextmanager
    def opened(self, bundle: Bundle, *, events: Events = SILENT) -> Iterator[SshSession]:
        items = [
            Item(bundle.path / file.path, name_there(file), file.sha256, file.size)
            for file in bundle.code
        ]
        model = _Folder("the model", f"models/{bundle.digest}", tuple(items))
        with self._reached(events, model) as place:
            check_machine(bundle, place.leased.cpu, self.name)
            sent = place.have(model, events=events)
            for runner in bundle.compiled_there:
                place.compile(model, runner.source, regions_of(bundle, runner.backend), events)
            yield SshSession(
                place.ready_agent(),
                bundle,
                f"{place.leased.root}/{model.path}/{LIBRARY}",
                replace(_installed(place.agent), model=sum(item.size for item in items), sent=sent),
                events,
            )

    @contextmanager
    def on_the_way(self, *, events: Events = SILENT) -> Iterator[SshDevice]:
        """The same device, to which we are on the way for the time of the block."""
        agent = build_agent(self.toolchain, self._arch, events=events)
        with Arrival(lambda closing: self._arrive(agent, closing)) as arrival:
            yield replace(self, arrival=arrival)

    @contextmanager
    def with_agent(self, *, events: Events = SILENT) -> Iterator[ReadyAgent]:
        """The device with the agent on it and no model, ours for the time of the block."""
        with self._reached(events) as place:
            place.have(events=events)
            yield place.ready_agent()

    def info(self, *, events: Events = SILENT) -> AgentInfo:
        """What the agent on the device says of the device."""
        with self.with_agent(events=events) as agent:
            return agent.info()

    @contextmanager
    def _reached(self, events: Events, *folders: _Folder) -> Iterator[_Place]:
        """The device, connected and ours."""
        agent = build_agent(self.toolchain, self._arch, events=events)
        wanted = (_agent_folder(agent), *folders)
        files = [f"{folder.path}/{item.name}" for folder in wanted for item in folder.items]
        with ExitStack() as held:
            there = self._arrived(agent, held)
            connection, leased = there.connection, None
            attendant: Attendant | None = there.attendant
            if there.attendant.is_here():
                leased = there.attendant.take(self.timeout, holder(), files, events)
            if leased is None:
                attendant = None  # it is to be sent first, or the shell tells better what is wrong
                leased = held.enter_context(
                    lease(
                        connection,
                        self.entry.directory,
                        wait=self.timeout,
                        user=holder(),
                        files=files,
                        events=events,
                    )
                )
            self._check_board(leased.cpu)
            yield _Place(self, connection, agent, leased, attendant, held)

    def _arrived(self, agent: Agent, held: ExitStack) -> Arrived:
        arrived = self.arrival.take() if self.arrival is not None else None
        if arrived is not None:
            held.enter_context(arrived.closing)
            if arrived.connection.is_alive():  # a build takes long enough for a board to restart
                return arrived
        connection, attendant = self._arrive(agent, held)
        return Arrived(connection, attendant, held)

    def _arrive(self, agent: Agent, held: ExitStack) -> tuple[Connection, Attendant]:
        connection = held.enter_context(connect(self.entry, known_hosts=self.known_hosts))
        starting = attending(connection, self.entry.directory, agent.digest)
        return connection, held.enter_context(starting)

    @property
    def _arch(self) -> str:
        return self.toolchain.triple.partition("-")[0]

    def _check_board(self, cpu: Processor) -> None:
        if self._arch != cpu.machine:
            raise DeviceError(
                f"{self.name} has a CPU of {cpu.machine}, and its board {self.entry.board} one of "
                f"{self._arch}",
                hint=f"add it again with the right board: edgekit device add {self.name} --board …",
            )


@dataclass(frozen=True)
class _Folder:
    """Files to have together on a device."""

    what: str
    path: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class _Place:
    """A device that is ours, and what is to be there."""

    device: SshDevice
    connection: Connection
    agent: Agent
    leased: Lease
    attendant: Attendant | None
    """None where the agent does not run yet."""
    closing: ExitStack

    def ready_agent(self) -> ReadyAgent:
        """The agent, running; it has to be there."""
        root, folder = self.leased.root, _agent_folder(self.agent).path
        attendant, leased = self.attendant, self.leased
        if attendant is None:
            starting = attending(self.connection, root, self.agent.digest, leased.scratch)
            attendant = self.closing.enter_context(starting)
            # Two writers would write the log in any order.
            leased = replace(leased, _write=attendant.log)
        ready = ReadyAgent(
            self.connection, root, f"{root}/{folder}/{AGENT}", leased, attendant,
            self.device.timeout,
        )  # fmt: skip
        if not attendant.is_here():
            done = attendant.command.finish(timeout=30)
            raise ready.failure(done, AgentMessages(), self.device.entry.board)
        return ready

    def have(self, *folders: _Folder, events: Events) -> int:
        """Push what is not there of the agent and these; the bytes that were sent."""
        missing = [
            folder for folder in (_agent_folder(self.agent), *folders) if not self._is_there(folder)
        ]
        if not missing:
            return 0
        facts = self.leased.facts or ask_device(self.connection, self.leased.root)
        store = Store(self.connection, facts)
        ours = frozenset(
            item.name for folder in (_agent_folder(self.agent), *folders) for item in folder.items
        )
        code = [item.source for f in missing for item in f.items if _is_code(item.name)]
        check_libraries(code, facts, self.connection, ours)
        return sum(
            store.push(folder.items, folder.path, events=events, what=folder.what).bytes_sent
            for folder in missing
        )

    def compile(self, model: _Folder, source: str, regions: str, events: Events) -> None:
        """What the device has to compile itself."""
        name = PurePosixPath(source).name
        wanted = CompiledThere(model.path, name, library_of(name), regions)
        compile_there(self.connection, self.leased.root, wanted, events)

    def _is_there(self, folder: _Folder) -> bool:
        there = self.leased.there
        return all(there.get(f"{folder.path}/{i.name}") == i.size for i in folder.items)


def regions_of(bundle: Bundle, backend: str) -> str:
    """What a backend runs of a model, in a few words."""
    operators = [o for r in bundle.manifest.regions if r.backend == backend for o in r.operators]
    more = f" and {len(operators) - 3} more" if len(operators) > 3 else ""
    return ", ".join(operators[:3]) + more


def _agent_folder(agent: Agent) -> _Folder:
    """The program first: a lease looks whether that can be run."""
    files = sorted(agent.files, key=lambda file: not file.executable)
    items = [Item(f.path, f.path.name, f.sha256, f.size, f.executable) for f in files]
    return _Folder("the agent", f"agents/{agent.digest}", tuple(items))


def _installed(agent: Agent) -> Installed:
    runtime = sum(file.size for file in agent.files if ".so" in file.path.name)
    return Installed(agent.size - runtime, runtime, 0, 0)


def _is_code(name: str) -> bool:
    return name == AGENT or ".so" in name
