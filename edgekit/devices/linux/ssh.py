"""Linux boards over SSH as devices: missing files are sent, and the agent runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from edgekit.agent.build import AGENT, Agent, build_agent, build_runtime
from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.wording import PURPOSE
from edgekit.cross.library_code import is_program
from edgekit.devices.base import Installed
from edgekit.devices.device import Device
from edgekit.devices.lending import FARM, Lender, Lent
from edgekit.devices.linux.agent_messages import AgentMessages
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.device_log import LogEntry, holder, read_log
from edgekit.devices.linux.early_connection import EarlyConnection, Reached
from edgekit.devices.linux.lease import Lease, lease
from edgekit.devices.linux.lease_client import LeaseClient, lease_client
from edgekit.devices.linux.preflight import check_libraries, check_machine
from edgekit.devices.linux.probe import Processor, ask_device, measurer_of
from edgekit.devices.linux.ready_agent import ReadyAgent
from edgekit.devices.linux.runner_build import RunnerSource, compile_on_device, library_of
from edgekit.devices.linux.ssh_session import LIBRARY, SshSession, name_on_device
from edgekit.devices.linux.transfer import Item, Store
from edgekit.devices.linux.versions import read_versions
from edgekit.devices.linux.visit import CheckReport, CleanReport, check_device, clean_device, visit
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
from edgekit.devices.power import revived
from edgekit.profiles.architecture import architecture
from edgekit.project.devices import LinuxEntry, SshEntry, twin_identity
from edgekit.twin.machine import status

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.linux.hostkeys import Ask, KnownHosts
    from edgekit.devices.linux.version_records import Version
    from edgekit.profiles.toolchain import Toolchain


@dataclass(frozen=True)
class SshDevice(Device):
    """A board over SSH. A session is one connection, and has the device to itself: its lease is a
    lock on the device, which every edgekit takes."""

    what: ClassVar[str] = "a board with Linux"
    instead: ClassVar[str] = "edgekit deploy brings models to it"
    entry: LinuxEntry
    toolchain: Toolchain
    """Toolchain that compiles the agent."""
    cpu_flags: tuple[str, ...] = field(default=(), kw_only=True)
    """The compiler's flags for the board's CPU."""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    """Seconds without a sign of life after which a call fails."""
    known_hosts: KnownHosts | None = None
    early: EarlyConnection | None = None
    """Connection that was begun before the device is needed."""
    is_emulated: bool = False
    lender: Lender = FARM
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.entry.name)

    def lent_by(self, lender: Lender) -> SshDevice:
        return replace(self, lender=lender)

    @contextmanager
    def opened(
        self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> Iterator[SshSession]:
        items = [
            Item(bundle.path / file.path, name_on_device(file), file.sha256, file.size)
            for file in bundle.code
        ]
        model = _Folder("the model", f"models/{bundle.digest}", tuple(items))
        needs_runtime = not is_program(bundle.library)
        with self._held(purpose, events, model, runtime=needs_runtime) as place:
            check_machine(bundle, place.leased.cpu, self.name)
            sent = place.have(model, events=events)
            for runner in bundle.compiled_there:
                place.compile(model, runner.source, regions_of(bundle, runner.backend), events)
            yield SshSession(
                place.ready_agent(),
                bundle,
                f"{place.leased.root}/{model.path}/{LIBRARY}",
                replace(_installed(place), model=sum(item.size for item in items), sent=sent),
                events,
                self.toolchain,
                self.cpu_flags,
            )

    @contextmanager
    def prepared_early(self, *, events: Events = SILENT) -> Iterator[SshDevice]:
        agent = build_agent(self.toolchain, self._arch, events=events)
        with EarlyConnection(lambda closing: self._connect(agent, closing, events)) as early:
            yield replace(self, early=early)

    @contextmanager
    def with_agent(self, *, runtime: bool = False, events: Events = SILENT) -> Iterator[ReadyAgent]:
        with self._held(os.environ.get(PURPOSE, "serve"), events, runtime=runtime) as place:
            place.have(events=events)
            yield place.ready_agent()

    def prepare(self, events: Events = SILENT) -> None:
        build_agent(self.toolchain, self._arch, events=events)

    def check_free(self) -> None:
        if self.lender.check_free(self.name, self._identity):
            return
        with visit(self.entry, wait=None, known_hosts=self.known_hosts):
            pass

    def agent(self) -> SshDevice:
        return self

    def version_keeper(self) -> SshDevice:
        return self

    def log_keeper(self) -> SshDevice:
        return self

    def file_keeper(self) -> SshDevice:
        return self

    def checkable(self) -> SshDevice:
        return self

    def shell(self) -> SshDevice:
        return self

    def logged_in(self, events: Events = SILENT) -> Connection:
        return self._connected(events)

    @contextmanager
    def held(self, purpose: str, events: Events = SILENT) -> Iterator[None]:
        with (
            self._lent(purpose, events),
            visit(self.entry, wait=self.timeout, known_hosts=self.known_hosts, events=events),
        ):
            yield

    def found_again(self) -> SshDevice:
        if not self.is_emulated or not isinstance(self.entry, SshEntry):
            return self
        access = status(self.name).access
        if access is None:
            return self
        return replace(self, entry=replace(self.entry, port=access.port))

    def ask_measurer(self) -> Measurer:
        if self.is_emulated:
            return "emulator"
        with connect(self.entry, known_hosts=self.known_hosts) as connection:
            return measurer_of(connection)

    def versions(self) -> tuple[Version, ...]:
        with connect(self.entry, known_hosts=self.known_hosts) as connection:
            return read_versions(connection, self.entry.directory)

    def read_log(
        self, lines: int, *, follow: Callable[[LogEntry], None] | None = None
    ) -> tuple[LogEntry, ...]:
        with connect(self.entry, known_hosts=self.known_hosts) as connection:
            return read_log(connection, self.entry.directory, lines, follow=follow)

    def check(self, *, ask: Ask | None = None, fingerprint: str | None = None) -> CheckReport:
        return check_device(
            self.entry,
            arch=self._arch,
            ask=ask,
            fingerprint=fingerprint,
            known_hosts=self.known_hosts,
        )

    def clean(
        self, *, keep: int = 0, everything: bool = False, events: Events = SILENT
    ) -> CleanReport:
        with (
            self._lent("clean", events),
            visit(self.entry, wait=self.timeout, known_hosts=self.known_hosts, events=events) as (
                connection,
                facts,
            ),
        ):
            return clean_device(connection, facts, keep=keep, everything=everything)

    @property
    def _identity(self) -> str:
        is_own_twin = self.is_emulated and isinstance(self.entry, SshEntry)
        return twin_identity(self.name) if is_own_twin else self.entry.identity

    def _lent(self, purpose: str, events: Events) -> AbstractContextManager[Lent]:
        return self.lender.lent(
            self.name, purpose, address=self._identity, wait=self.timeout, events=events
        )

    @contextmanager
    def _held(
        self, purpose: str, events: Events, *folders: _Folder, runtime: bool = False
    ) -> Iterator[_Place]:
        """Wait for the device, connect to it and hold it. With `runtime`, TVM's runtime is wanted
        there."""
        agent = build_agent(self.toolchain, self._arch, events=events)
        own = [_agent_folder(agent)]
        if runtime:
            made = build_runtime(self.toolchain, self._arch, events=events)
            own.append(_agent_folder(made, "TVM's runtime"))
        wanted = (*own, *folders)
        files = [f"{folder.path}/{item.name}" for folder in wanted for item in folder.items]
        with self._lent(purpose, events), ExitStack() as held:
            early = self.early.take() if self.early is not None else None
            if early is not None:
                held.enter_context(early.closing)
                try:
                    client, leased = self._leased(early, files, held, events)
                except DeviceError:
                    if not early.connection.has_ended():  # a board may restart during a build
                        raise
                    early = None
            reached = early or Reached(*self._connect(agent, held, events), held)
            if early is None:
                client, leased = self._leased(reached, files, held, events)
            self._check_board(leased.cpu)
            yield _Place(self, reached.connection, agent, tuple(own), leased, client, held)

    def _leased(
        self, reached: Reached, files: Sequence[str], held: ExitStack, events: Events
    ) -> tuple[LeaseClient | None, Lease]:
        """Hold the device through a connection: by its agent, or by a shell."""
        if reached.client.is_running():
            leased = reached.client.take(self.timeout, holder(), files, events)
            if leased is not None:
                return reached.client, leased
        # The agent is missing, or the shell reports better what is wrong.
        directory = self.entry.directory
        by_shell = lease(
            reached.connection,
            directory,
            wait=self.timeout,
            user=holder(),
            files=files,
            events=events,
        )
        return None, held.enter_context(by_shell)

    def _connected(self, events: Events = SILENT) -> Connection:
        """Log in; a silent device whose power can be switched is switched off and on before."""
        return revived(
            self.entry, lambda: connect(self.entry, known_hosts=self.known_hosts), events
        )

    def _connect(
        self, agent: Agent, held: ExitStack, events: Events = SILENT
    ) -> tuple[Connection, LeaseClient]:
        connection = held.enter_context(self._connected(events))
        client = lease_client(connection, self.entry.directory, agent.digest)
        return connection, held.enter_context(client)

    @property
    def _arch(self) -> str:
        return architecture(self.toolchain.triple)

    def _check_board(self, cpu: Processor) -> None:
        if self._arch != cpu.arch:
            raise DeviceError(
                f"{self.name} has a CPU of {cpu.machine}, but its board {self.entry.board} one of "
                f"{self._arch}",
                hint=f"add it again with the right board: edgekit device add {self.name} --board …",
            )


@dataclass(frozen=True)
class _Folder:
    """Files that belong together on a device."""

    what: str
    path: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class _Place:
    """A device that is held, and the files it needs."""

    device: SshDevice
    connection: Connection
    agent: Agent
    own: tuple[_Folder, ...]
    """The agent's folder, and that of TVM's runtime where it is wanted."""
    leased: Lease
    client: LeaseClient | None
    """Client of the agent; None if it does not run yet."""
    closing: ExitStack

    def ready_agent(self) -> ReadyAgent:
        """Start the agent, which must be installed."""
        root, folder = self.leased.root, _agent_folder(self.agent).path
        client, leased = self.client, self.leased
        if client is None:
            starting = lease_client(self.connection, root, self.agent.digest, leased.scratch)
            client = self.closing.enter_context(starting)
            # Two writers would write the log in any order.
            leased = replace(leased, _write=client.log)
        ready = ReadyAgent(
            self.connection, root, f"{root}/{folder}/{AGENT}", leased, client,
            self.device.timeout, self.device.is_emulated,
            *(f"{root}/{other.path}" for other in self.own[1:]),
        )  # fmt: skip
        if not client.is_running():
            done = client.command.finish(timeout=30)
            raise ready.failure(done, AgentMessages(), self.device.entry.board)
        return ready

    def have(self, *folders: _Folder, events: Events) -> int:
        """Send the missing files of the agent and these folders; return the bytes sent."""
        missing = [folder for folder in (*self.own, *folders) if not self._is_complete(folder)]
        if not missing:
            return 0
        facts = self.leased.facts or ask_device(self.connection, self.leased.root)
        store = Store(self.connection, facts)
        ours = frozenset(item.name for folder in (*self.own, *folders) for item in folder.items)
        code = [item.source for f in missing for item in f.items if _is_code(item.name)]
        check_libraries(code, facts, self.connection, ours)
        return sum(
            store.push(folder.items, folder.path, events=events, what=folder.what).bytes_sent
            for folder in missing
        )

    def compile(self, model: _Folder, source: str, regions: str, events: Events) -> None:
        """Compile a source of the model on the device."""
        name = PurePosixPath(source).name
        wanted = RunnerSource(model.path, name, library_of(name), regions)
        compile_on_device(self.connection, self.leased.root, wanted, events)

    def _is_complete(self, folder: _Folder) -> bool:
        present = self.leased.present
        return all(present.get(f"{folder.path}/{i.name}") == i.size for i in folder.items)


def regions_of(bundle: Bundle, backend: str) -> str:
    """Describe in a few words the layers that a backend runs of a model."""
    operators = [o for r in bundle.manifest.regions if r.backend == backend for o in r.operators]
    more = f" and {len(operators) - 3} more" if len(operators) > 3 else ""
    return ", ".join(operators[:3]) + more


def _agent_folder(agent: Agent, what: str = "the agent") -> _Folder:
    """Return the files, the program first: a lease checks whether that can be run."""
    files = sorted(agent.files, key=lambda file: not file.executable)
    items = [Item(f.path, f.path.name, f.sha256, f.size, f.executable) for f in files]
    return _Folder(what, f"agents/{agent.digest}", tuple(items))


def _installed(place: _Place) -> Installed:
    agent, *runtime = (sum(item.size for item in folder.items) for folder in place.own)
    return Installed(agent, sum(runtime), 0, 0)


def _is_code(name: str) -> bool:
    return name.startswith(AGENT) or ".so" in name
