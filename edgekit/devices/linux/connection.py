"""One SSH connection to a device. It carries commands, files and forwarded ports."""

from __future__ import annotations

import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.devices.linux import signs_of_life
from edgekit.devices.linux.forwarding import LocalForward
from edgekit.devices.linux.handshake import Trust, WatchedSocket, log_in
from edgekit.devices.linux.hostkeys import Ask, KnownHosts, fingerprint_of
from edgekit.devices.linux.joined_host import log_in_through
from edgekit.devices.linux.remote_command import Finished, RemoteCommand, guarded
from edgekit.devices.linux.ssh_config import Hop, route_to
from edgekit.devices.serial.labgrid import acquired
from edgekit.project.devices import JoinedEntry, LinuxEntry, PlaceEntry

if TYPE_CHECKING:
    from paramiko import Channel, Transport

DEFAULT_COMMAND_SECONDS = 60.0
SECONDS_OF_SILENCE = 15.0
"""Silence after which a device counts as gone, although it was asked to answer."""

_SECONDS_BETWEEN_QUESTIONS = 5.0
_SECONDS_TO_NOTICE = 1.0
_MOST_OUTPUT = 1 << 20


class Connection:
    """A logged-in connection with threads of its own. Use it as a context manager, or close it."""

    def __init__(self, name: str, hop: Hop, transport: Transport, heard: WatchedSocket) -> None:
        self.name = name
        """Name of the device, for messages."""
        self._hop = hop
        self._transport = transport
        self._heard = heard
        self._requests = threading.Lock()
        self._closing = threading.Event()
        self._went_silent = False
        self._listening: set[RemoteCommand] = set()
        self._heart: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._silence = signs_of_life.SECONDS_WITHOUT_HOST
        self.mark = secrets.token_hex(8)
        """Mark by which the device recognizes commands of this connection."""
        self._behind = ExitStack()
        """Connections and programs that carry this one; closed after it."""
        threading.Thread(target=self._watch, name=f"edgekit-watch-{name}", daemon=True).start()

    @property
    def address(self) -> str:
        return str(self._hop)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the host key."""
        return fingerprint_of(self._transport.get_remote_server_key())

    @property
    def transport(self) -> Transport:
        """paramiko's transport, for code that brings its own channels."""
        return self._transport

    def run(
        self,
        words: Sequence[str],
        *,
        timeout: float | None = DEFAULT_COMMAND_SECONDS,
        silence: float | None = None,
        on_line: Callable[[str], None] | None = None,
        most_output: int = _MOST_OUTPUT,
    ) -> Finished:
        """Run a command to its end. Every word arrives unchanged.

        `timeout` limits the whole command, `silence` every moment without output. On Ctrl-C, a
        time-out or a lost connection the command is killed on the device.
        """
        with self.command(guarded(words), title=words[0], listens=True) as command:
            return command.finish(timeout, silence, on_line, most_output)

    @contextmanager
    def command(
        self, words: Sequence[str], *, title: str = "", listens: bool = False
    ) -> Iterator[RemoteCommand]:
        """Start a command that reads its input, which ends with the block.

        `title` names it in messages, if its first word says too little. A command that `listens` is
        sent signs of life, and ends without them. Its shell finds in `silence` how many seconds it
        may hear none, and in `mark` the mark of its connection.
        """
        if listens:
            variables = f"silence={self._silence} mark={self.mark}\n"
            words = (*words[:2], variables + words[2], *words[3:])
        channel = self.open_channel("session")
        try:
            with self.lost_explained():
                channel.exec_command(" ".join(shlex.quote(word) for word in words))
            command = RemoteCommand(self, channel, (title or words[0]).rpartition("/")[2][:60])
            if listens:
                self._begin_beating(command)
            try:
                yield command
            finally:
                self._listening.discard(command)
        finally:
            channel.close()

    @property
    def stream_name(self) -> str:
        """Name (`$0`) of a shell whose input is a stream of data. Commands that listen end it."""
        return f"stream-{self.mark}"

    def open_channel(self, kind: str, destination: tuple[str, int] | None = None) -> Channel:
        from paramiko import ChannelException

        origin = ("127.0.0.1", 0) if destination else None
        with self.lost_explained():
            try:
                return self._transport.open_channel(kind, destination, origin)
            except ChannelException as error:
                raise DeviceError(
                    f"{self.name} does not open a channel: {error.text}",
                    hint="its SSH server limits sessions or forwarding (MaxSessions, "
                    "AllowTcpForwarding in sshd_config)",
                ) from error

    @contextmanager
    def lost_explained(self) -> Iterator[None]:
        """Turn paramiko's errors in the block into DeviceError."""
        from paramiko import SSHException

        try:
            yield
        except (SSHException, EOFError, OSError) as error:
            raise self.lost() from error

    def is_alive(self) -> bool:
        return bool(self._transport.is_active())

    def has_ended(self) -> bool:
        """Return whether the connection ended; a moment passes before it is known to have."""
        self._transport.join(_SECONDS_TO_NOTICE)
        return not self.is_alive()

    def lost(self) -> DeviceError:
        """Return the error for a connection that is lost."""
        if self._went_silent:
            return DeviceError(
                f"{self.name} stopped answering: it was silent for {SECONDS_OF_SILENCE:g} s",
                hint="check the device and the network; the device keeps what was sent so far",
            )
        return DeviceError(
            f"the connection to {self.name} was lost",
            hint="check the device and the network, then try again: the device keeps what was "
            "sent so far",
        )

    def forward(
        self,
        remote_port: int,
        remote_host: str = "127.0.0.1",
        refused: Callable[[str], None] = lambda reason: None,
    ) -> int:
        """Forward a port of this machine's loopback to a port of the device, and return it.
        `refused` is called for connections of other users."""
        forwarding = LocalForward(self, (remote_host, remote_port), refused=refused)
        self._behind.callback(forwarding.close)
        return forwarding.port

    def close(self) -> None:
        self._closing.set()
        self._transport.close()
        self._behind.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close_with(self, closing: ExitStack) -> None:
        """Take over the resources that carry this connection."""
        self._behind.push(closing)

    def _begin_beating(self, command: RemoteCommand) -> None:
        self._listening.add(command)
        with self._beginning:
            if self._heart is None:
                self._heart = threading.Thread(target=self._beat, daemon=True)
                self._heart.start()

    def _beat(self) -> None:
        while not self._closing.wait(self._silence / signs_of_life.BEATS_IN_THAT_TIME):
            if not self._transport.is_active():
                return
            for command in tuple(self._listening):
                command.beat()

    def _watch(self) -> None:
        """Ask for a sign of life now and then; without one, end the connection.

        A device that lost its power or its network closes nothing: every wait would be endless.
        """
        while not self._closing.wait(_SECONDS_BETWEEN_QUESTIONS):
            if not self._transport.is_active():
                return
            answered = threading.Event()
            threading.Thread(target=self._ask, args=(answered,), daemon=True).start()
            asked = time.monotonic()
            while not answered.wait(0.5) and not self._closing.is_set():
                if time.monotonic() - max(asked, self._heard.last_heard) > SECONDS_OF_SILENCE:
                    self._went_silent = True
                    self._transport.close()
                    return

    def _ask(self, answered: threading.Event) -> None:
        from paramiko import SSHException

        try:
            with self._requests:
                self._transport.global_request("keepalive@openssh.com", wait=True)
        except (SSHException, EOFError, OSError):
            pass  # the user of the connection gets the error
        finally:
            answered.set()


def connect(
    entry: LinuxEntry,
    *,
    known_hosts: KnownHosts | None = None,
    ask: Ask | None = None,
    fingerprint: str | None = None,
    config_file: Path | None = None,
) -> Connection:
    """Log in to a device through its jump hosts; DeviceError with the reason if that fails.

    `ask` and `fingerprint` apply to the device's own host key; jump hosts must be trusted already.
    """
    trusted = known_hosts or KnownHosts()
    with ExitStack() as opened:
        if isinstance(entry, PlaceEntry):
            entry = opened.enter_context(acquired(entry.place)).reached(entry)
        if isinstance(entry, JoinedEntry):
            host = opened.enter_context(connect(entry.host, known_hosts=known_hosts, ask=ask))
            hop, transport, heard = log_in_through(entry, host)
            connection = Connection(entry.name, hop, transport, heard)
            connection.close_with(opened.pop_all())
            return connection
        hops = route_to(entry, config_file)
        through: Transport | None = None
        for hop in hops[:-1]:
            through, _ = log_in(hop, through, Trust(trusted, ask))
            opened.callback(through.close)
        transport, heard = log_in(hops[-1], through, Trust(trusted, ask, fingerprint))
        connection = Connection(entry.name, hops[-1], transport, heard)
        connection.close_with(opened.pop_all())
        return connection
    raise AssertionError("unreachable")
