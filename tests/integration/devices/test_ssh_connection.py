"""A connection to a real SSH server: what goes through it, and what is said when it can't."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.needs import needs
from support.ports import free_port
from support.processes import command_lines
from support.rpc_lab import eventually
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import DeviceError
from edgekit.devices.linux import connection as connections
from edgekit.devices.linux import handshake
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.hostkeys import KnownHosts
from edgekit.devices.linux.probe import ask_device
from edgekit.devices.linux.remote_command import CommandTimeout
from edgekit.devices.linux.ssh_config import Hop

pytestmark = needs("sshd")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def connection(server: SshServer) -> Iterator[Connection]:
    with server.connect() as opened:
        yield opened


def runs(*words: str) -> bool:
    """Whether such a process is there, with these arguments and no others."""
    return [*words, ""] in command_lines().values()


@given(st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8")), max_size=6))
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_word_arrives_as_it_is(connection: Connection, words: list[str]) -> None:
    done = connection.run(("sh", "-c", 'printf "%s\\0" "$@"', "sh", *words))

    assert done.output.split("\0")[:-1] == (words or [""])


def test_output_errors_and_status_come_back(connection: Connection) -> None:
    done = connection.run(("sh", "-c", "echo one; echo two; echo bad >&2; exit 7"))

    assert (done.status, done.output, done.errors) == (7, "one\ntwo", ("bad",))
    assert done.signal is None


def test_a_signal_is_told(connection: Connection) -> None:
    assert connection.run(("sh", "-c", "kill -SEGV $$")).signal == signal.SIGSEGV


def test_lines_are_passed_on_while_the_command_runs(connection: Connection, tmp_path: Path) -> None:
    seen: list[str] = []
    go = tmp_path / "go"

    def on_line(line: str) -> None:
        seen.append(line)
        go.touch()

    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.05; done; echo second'
    connection.run(("sh", "-c", script, "sh", str(go)), on_line=on_line, timeout=240)

    assert seen == ["first", "second"]


def test_a_flood_of_output_fills_no_memory(connection: Connection) -> None:
    mark = f"y{os.getpid()}"
    with pytest.raises(DeviceError, match="more output than edgekit accepts"):
        connection.run(("yes", mark), timeout=240)
    with pytest.raises(DeviceError, match="more output than edgekit accepts"):
        connection.run(("sh", "-c", "head -c 20000000 /dev/zero"), timeout=240)
    lines = 0

    def count(line: str) -> None:
        nonlocal lines
        lines += 1

    script = f"yes {mark} | head -n 300000; yes {mark} | head -n 300000 >&2"
    done = connection.run(("sh", "-c", script), on_line=count, timeout=240)

    assert lines == 300000
    assert done.output == ""
    assert len(done.errors) <= 100
    eventually(lambda: not runs("yes", mark))


def test_a_command_that_never_ends_is_killed_over_there(connection: Connection) -> None:
    mark = f"sleep 98{os.getpid()}"

    with pytest.raises(CommandTimeout, match="did not end in time") as caught:
        connection.run(("sh", "-c", f"{mark}; true"), timeout=0.7)

    assert caught.value.hint
    eventually(lambda: not runs(*mark.split()))


def test_a_command_without_a_sign_of_life_is_killed(connection: Connection) -> None:
    mark = f"sleep 97{os.getpid()}"

    with pytest.raises(CommandTimeout, match=r"no sign of life for 0\.7 s"):
        connection.run(("sh", "-c", f"echo alive; {mark}"), timeout=None, silence=0.7)

    eventually(lambda: not runs(*mark.split()))


def test_ctrl_c_kills_the_command_over_there(connection: Connection) -> None:
    mark = f"sleep 96{os.getpid()}"

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connection.run(("sh", "-c", f"echo go; {mark}"), on_line=interrupt)

    eventually(lambda: not runs(*mark.split()))
    assert connection.run(("echo", "still there")).output == "still there"


def test_a_dropped_connection_is_told_and_kills_its_command(server: SshServer) -> None:
    mark = f"sleep 95{os.getpid()}"
    with server.connect() as own:
        with pytest.raises(DeviceError, match="connection to desk was lost") as caught:
            own.run(
                ("sh", "-c", f"echo go; {mark}"), on_line=lambda line: server.drop_connections()
            )
        with pytest.raises(DeviceError, match="was lost"):
            own.run(("true",))

    assert caught.value.hint
    eventually(lambda: not runs(*mark.split()))


def test_a_device_that_goes_silent_is_noticed(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SECONDS_BETWEEN_QUESTIONS", 0.3)
    frozen: list[int] = []

    def freeze(line: str) -> None:
        frozen.extend(server.sessions())
        for session in frozen:
            with suppress(ProcessLookupError):  # an earlier test's, that has just ended
                os.kill(session, signal.SIGSTOP)
        monkeypatch.setattr(connections, "SECONDS_OF_SILENCE", 1.0)

    with server.connect() as own:
        try:
            with pytest.raises(DeviceError, match="stopped answering"):
                own.run(("sh", "-c", "echo go; sleep 60"), on_line=freeze, timeout=None)
        finally:
            for session in frozen:
                with suppress(ProcessLookupError):
                    os.kill(session, signal.SIGKILL)


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                while data := client.recv(65536):
                    client.sendall(data)


def test_ports_lead_to_the_device_and_close_with_the_connection(server: SshServer) -> None:
    echo = Echo()
    data = os.urandom(300_000)
    with server.connect() as own:
        ports = [own.forward(echo.port), own.forward(echo.port)]
        for port in ports:
            with socket.create_connection(("127.0.0.1", port)) as client:
                sender = threading.Thread(target=client.sendall, args=(data,))
                sender.start()
                back = b""
                while len(back) < len(data):
                    more = client.recv(65536)
                    assert more, "it hung up"
                    back += more
                sender.join()
            assert back == data
    for port in ports:
        eventually(lambda port=port: refuses(port))
    echo.listener.close()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_ports_listen_on_loopback_only(server: SshServer) -> None:
    with server.connect() as own:
        ports = {own.forward(1)}
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
        hosts = {a.split(":")[0] for a in listening if int(a.split(":")[1], 16) in ports}

    assert hosts == {"0100007F"}


def test_a_forwarded_port_with_nobody_behind_it_just_closes(connection: Connection) -> None:
    with socket.create_connection(("127.0.0.1", connection.forward(free_port()))) as client:
        client.settimeout(240)
        assert client.recv(1) == b""


def test_a_host_in_between_is_gone_through(server: SshServer, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n HostName 127.0.0.1\n Port {server.port}\n IdentityFile {server.key}\n"
        f"Host device\n HostName localhost\n Port {server.port}\n HostKeyAlias device\n"
        f" IdentityFile {server.key}\n IdentitiesOnly yes\n ProxyJump {server.user}@gate\n"
    )
    server.connect().close()
    entry = replace(server.entry(), host="device", port=None, key=None)

    with connect(
        entry,
        known_hosts=server.known_hosts,
        fingerprint=server.fingerprint,
        config_file=config,
    ) as through:
        assert through.run(("echo", "hello")).output == "hello"
        assert through.address.endswith(f"localhost:{server.port}")


def test_the_host_in_between_is_not_trusted_either(server: SshServer, tmp_path: Path) -> None:
    entry = replace(server.entry(), proxy=f"{server.user}@127.0.0.1:{server.port}")
    nothing = KnownHosts(tmp_path / "own", tmp_path / "users")

    with pytest.raises(DeviceError, match="is unknown"):
        connect(entry, known_hosts=nothing, fingerprint=server.fingerprint)


def refused(server: SshServer, **change: object) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        connect(
            replace(server.entry(), **change),  # type: ignore[arg-type]
            known_hosts=server.known_hosts,
            fingerprint=(change.get("host") is None and server.fingerprint) or None,  # type: ignore[arg-type]
        )
    assert caught.value.hint
    return caught.value


def test_a_wrong_user_is_told_with_what_was_offered(server: SshServer) -> None:
    error = refused(server, user="nobody-by-that-name")

    assert error.message.startswith("127.0.0.1 does not let nobody-by-that-name in")
    assert f"offered {server.key}" in error.details


def test_a_wrong_key_is_told(server: SshServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "pw", "-f", str(locked)], check=True)
    (tmp_path / "text").write_text("not a key")

    assert "none of the keys is let in" in refused(server, key=str(other)).message
    for name, why in (
        ("locked", "locked"),
        ("text", "not a private key"),
        ("gone", "no such file"),
    ):
        error = refused(server, key=str(tmp_path / name))
        assert "there was no key to offer" in error.message
        assert why in error.details[0]


def test_a_changed_host_key_stops_everything(server: SshServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    kind, key = (tmp_path / "other.pub").read_text().split()[:2]
    users = tmp_path / "known_hosts"
    users.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")

    with pytest.raises(DeviceError, match="has changed") as caught:
        connect(server.entry(), known_hosts=KnownHosts(tmp_path / "own", users))

    assert server.fingerprint in caught.value.message


def test_a_closed_port_and_an_unknown_name_are_told(server: SshServer) -> None:
    assert "refuses connections" in refused(server, port=free_port()).message
    assert "is unknown" in refused(server, host="no-such-host.invalid").message


def test_no_route_is_told() -> None:
    hop = Hop("10.9.8.7", 22, "pi", (), False, "10.9.8.7")

    error = handshake.explained(OSError(errno.EHOSTUNREACH, "No route to host"), hop)

    assert error.message == "there is no route to 10.9.8.7"


def test_something_else_than_ssh_is_told(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "SECONDS_TO_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "does not speak SSH" in refused(server, port=silent.getsockname()[1]).message


def test_what_a_device_says_of_itself_is_what_is_true(connection: Connection) -> None:
    facts = ask_device(connection)

    assert facts.machine == os.uname().machine
    assert facts.trouble is None
    assert facts.free is not None
    assert facts.free > 0
    assert ".".join(map(str, facts.glibc)) == os.confstr("CS_GNU_LIBC_VERSION").split()[1]  # type: ignore[union-attr]
    assert {"sha256sum", "flock"} <= facts.tools
    assert "processor" in facts.cpuinfo
