"""Whose connection it is: the kernel's answer, held against users that this test becomes itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.needs import needs
from support.other_user import UID

from edgekit.base import peer_owner
from edgekit.base.own_listener import Door, OwnListener, listen_on_loopback
from edgekit.base.peer_owner import OwnerUnknown, end_of, from_netlink, from_tables, peer_uid

pytestmark = needs("root")

PATIENCE = 120
KINDS = [
    pytest.param("127.0.0.1", "127.0.0.1", id="IPv4"),
    pytest.param("::1", "::1", id="IPv6"),
    pytest.param("::", "127.0.0.1", id="IPv4 to a listener for both"),
    pytest.param("127.0.0.1", "::ffff:127.0.0.1", id="an IPv6 socket to an IPv4 listener"),
]

CLIENT = """\
import os, socket, sys
family, host, port, uid, ending = sys.argv[1:]
os.setgroups([]), os.setgid(int(uid)), os.setuid(int(uid))
stream = socket.socket(int(family))
stream.connect((host, int(port)))
stream.sendall(b"hello")
if ending == "stay":
    sys.stdout.write("connected\\n"), sys.stdout.flush()
    sys.stdin.read()
"""


@contextmanager
def client(listener: socket.socket, host: str, uid: int, ending: str = "stay") -> Iterator[None]:
    """A process of that user, which is connected; or was, and has ended."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    words = [str(int(family)), host, str(listener.getsockname()[1]), str(uid), ending]
    with subprocess.Popen(
        [sys.executable, "-I", "-c", CLIENT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == (b"connected\n" if ending == "stay" else b"")
        yield


def listening_on(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")


@pytest.mark.parametrize("way", ["netlink", "tables"])
@pytest.mark.parametrize("uid", [0, UID])
@pytest.mark.parametrize(("host", "to"), KINDS)
def test_the_owner_is_the_user_who_connected(
    host: str, to: str, uid: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_owner, "_netlink_answers", lambda: way == "netlink")
    with listening_on(host) as listener, client(listener, to, uid):
        connection, _ = listener.accept()
        with connection:
            assert peer_uid(connection) == uid


@pytest.mark.parametrize("way", ["netlink", "tables"])
@pytest.mark.parametrize(("host", "to"), KINDS)
def test_a_connection_whose_process_has_ended_is_not_roots(
    host: str, to: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel writes user 0 beside a socket that no process has any more."""
    monkeypatch.setattr(peer_owner, "_netlink_answers", lambda: way == "netlink")
    with listening_on(host) as listener:
        with client(listener, to, UID, "end"):
            connection, _ = listener.accept()
        with connection:
            with pytest.raises(OwnerUnknown):
                peer_uid(connection)
            assert not Door().admits(connection)


def test_this_kernel_is_asked_for_single_sockets() -> None:
    """Its tables are long where many sockets are open."""
    assert peer_owner._netlink_answers()


def test_a_listener_at_the_peers_port_is_not_taken_for_the_peer() -> None:
    """The kernel looks for one where it finds no connection."""
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as unconnected:
        unconnected.bind(("127.0.0.1", 0))
        ends = [end_of(each.getsockname()) for each in (other, unconnected)]

        assert from_netlink(*ends) is None
        assert from_tables(*ends) is None


def test_a_system_that_says_nothing_of_owners_refuses_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peer_owner, "_netlink_answers", lambda: False)
    monkeypatch.setattr(peer_owner, "_TABLES", (tmp_path / "tcp",))
    told: list[str] = []
    door = Door(told.append)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert not door.admits(connection)
        assert not door.admits(connection)

    assert len(told) == 1
    assert "neither sock_diag nor" in told[0]


def test_a_socket_in_the_file_system_knows_its_user() -> None:
    first, second = socket.socketpair(socket.AF_UNIX)
    with first, second:
        assert peer_uid(first) == os.geteuid()


def test_a_listener_serves_its_user_while_others_are_refused_and_stay_silent() -> None:
    told: list[str] = []
    with listen_on_loopback(0, told.append) as listener:
        served: list[bytes] = []

        def serve() -> None:
            for connection in listener.connections():
                with connection:
                    served.append(connection.recv(5))

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            client(listener, "127.0.0.1", UID),
            client(listener, "127.0.0.1", UID),
            socket.create_connection(listener.getsockname(), timeout=PATIENCE) as own,
        ):
            own.sendall(b"right")
            assert own.recv(1) == b""
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert served == [b"right"]
    assert told == [
        f"a connection of user {UID} to port {port_in(told[0])} was refused: it is for root only"
    ]


def port_in(text: str) -> str:
    return text.partition(" to port ")[2].partition(" ")[0]


SERVER = """\
import os, socket, sys
import encodings.idna
from edgekit.base.own_listener import listen_on_loopback
uid = int(sys.argv[1])
os.setgroups([]), os.setgid(uid), os.setuid(uid)
listener = listen_on_loopback(0, lambda text: print(text, flush=True))
print(listener.getsockname()[1], flush=True)
for connection in listener.connections():
    with connection:
        connection.sendall(b"served")
"""


def test_a_server_of_a_plain_user_serves_that_user_and_root_and_no_third() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(UID)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        heard = {uid: _heard_by(uid, port) for uid in (UID, 0, UID + 1)}
        line = server.stdout.readline()
        server.kill()

    assert heard == {UID: b"served", 0: b"served", UID + 1: b""}
    assert f"a connection of user {UID + 1} " in line
    assert f"it is for user {UID} and root only" in line


_HEAR = """\
import os, socket, sys
uid, port = map(int, sys.argv[1:])
os.setgroups([]), os.setgid(uid), os.setuid(uid)
stream = socket.socket()
stream.connect(("127.0.0.1", port))
try:
    sys.stdout.buffer.write(stream.recv(100))
except ConnectionResetError:
    pass
"""


def _heard_by(uid: int, port: int) -> bytes:
    return subprocess.run(
        [sys.executable, "-I", "-c", _HEAR, str(uid), str(port)],
        capture_output=True,
        cwd="/",
        check=True,
    ).stdout


def test_a_listener_that_does_not_block_returns_after_each_refusal() -> None:
    """An event loop would serve no one else while another user calls without end."""
    told: list[str] = []
    with OwnListener(socket.create_server(("127.0.0.1", 0)), told.append) as listener:
        listener.setblocking(False)
        with (
            client(listener, "127.0.0.1", UID),
            client(listener, "127.0.0.1", UID),
            client(listener, "127.0.0.1", 0),
        ):
            for _ in range(2):
                with pytest.raises(BlockingIOError):
                    listener.accept()
            connection, _ = listener.accept()
            connection.close()
