"""Finds the user who owns the other end of a connection between two processes of this host.

Netlink finds one socket in constant time, however many there are. The tables in /proc/net are read
if a kernel has no sock_diag.
"""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, NamedTuple

_Address = IPv4Address | IPv6Address
_End = tuple[_Address, int]

# linux/sock_diag.h, linux/inet_diag.h, linux/netlink.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY_STATE = 0xFFFFFFFF
_ANY_INTERFACE = struct.pack("=I", 0) + b"\xff" * 8
"""And no cookie."""
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ENDS = struct.Struct("!HH16s16s")
_ANSWER = struct.Struct("=BBBB48xIIIII")
_LARGEST_ANSWER = 8192
_KERNEL = 0
"""The kernel's address on netlink."""
_SECONDS_TO_ANSWER = 1.0

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOOKS_AT_TABLES = 2
"""The number of times that a table is read. A row may be missing once while others change."""


class OwnerUnknown(Exception):
    """The owner of the other end is unknown.

    `is_expected` if the system is fine: the connection was closed or comes from another host.
    """

    def __init__(self, reason: str, *, is_expected: bool = False) -> None:
        super().__init__(reason)
        self.is_expected = is_expected


class Row(NamedTuple):
    """A socket as the kernel lists it."""

    uid: int
    inode: int
    """The inode; 0 once no process has the socket any more. Then `uid` is not its owner."""


def peer_uid(connection: socket.socket) -> int:
    """Return the user who owns the other end of an accepted connection; OwnerUnknown if unknown."""
    if connection.family == socket.AF_UNIX:
        said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return _checked(int(struct.unpack("3i", said)[1]))
    try:
        peer, own = end_of(connection.getpeername()), end_of(connection.getsockname())
    except OSError as error:
        raise OwnerUnknown("the connection was closed", is_expected=True) from error
    row = from_netlink(peer, own) if _netlink_answers() else from_tables(peer, own)
    if row is None or row.inode == 0:
        raise OwnerUnknown("it was closed, or comes from another machine", is_expected=True)
    return _checked(row.uid)


def end_of(address: Any) -> _End:
    """Return an address. An IPv4 address that is written as IPv6 becomes IPv4 again."""
    found = ip_address(str(address[0]).partition("%")[0])
    return _plain(found), int(address[1])


def _plain(address: _Address) -> _Address:
    return getattr(address, "ipv4_mapped", None) or address


def _checked(uid: int) -> int:
    """Refuse the number that the kernel shows for all users that a user namespace lacks."""
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="utf-8"))
        whole = Path("/proc/self/uid_map").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        overflow, whole = 65534, []
    if uid in (overflow, -1) and whole != ["0", "0", "4294967295"]:
        raise OwnerUnknown("its user is unknown in this user namespace")
    return uid


@lru_cache(maxsize=1)
def _netlink_answers() -> bool:
    """Return whether this kernel has sock_diag for TCP.

    Without it, the answer is the same as for an unknown socket. So an existing one is looked up.
    """
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as client,
        ):
            return (
                from_netlink(end_of(client.getsockname()), end_of(client.getpeername())) is not None
            )
    except (OSError, OwnerUnknown):
        return False


def from_netlink(peer: _End, own: _End) -> Row | None:
    """Look up the socket at `peer` that is connected to `own`; None if there is none."""
    (address, port), (own_address, own_port) = peer, own
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    places = (address.packed.ljust(16, b"\0"), own_address.packed.ljust(16, b"\0"))
    ends = _ENDS.pack(port, own_port, *places)
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + ends + _ANY_INTERFACE
    size = _HEADER.size + len(request)
    message = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_SECONDS_TO_ANSWER)
            netlink.sendto(message, (0, 0))
            answer, sender = netlink.recvfrom(_LARGEST_ANSWER)
    except OSError as error:
        raise OwnerUnknown(f"sock_diag does not say its user: {error.strerror or error}") from error
    if sender[0] != _KERNEL:
        raise OwnerUnknown("another process answered in place of sock_diag")
    kind, body = _HEADER.unpack_from(answer)[1], answer[_HEADER.size :]
    if kind != _SOCK_DIAG_BY_FAMILY or len(body) < _ANSWER.size:
        return None
    # The kernel takes a listener where it finds no connection: what it found is compared.
    found_port, found_own_port, found, found_own = _ENDS.unpack_from(body, 4)
    is_4 = body[0] == socket.AF_INET
    ends_found = (_bytes_as_address(found, is_4), _bytes_as_address(found_own, is_4))
    if (found_port, found_own_port, *ends_found) != (port, own_port, address, own_address):
        return None
    *_, uid, inode = _ANSWER.unpack_from(body)
    return Row(uid, inode)


def _bytes_as_address(data: bytes, is_4: bool) -> _Address:
    return ip_address(data[:4]) if is_4 else _plain(ip_address(data))


def from_tables(peer: _End, own: _End) -> Row | None:
    """Look up the socket in /proc/net. The second table is missing on a kernel without IPv6."""
    for _ in range(_LOOKS_AT_TABLES):
        for table in _TABLES:
            try:
                lines = table.read_text(encoding="utf-8").splitlines()[1:]
            except OSError as error:
                if table != _TABLES[0]:
                    continue
                raise OwnerUnknown(
                    f"this system has neither sock_diag nor {table}, which say its user"
                ) from error
            row = row_of(lines, peer, own)
            if row is not None:
                return row
    return None


def row_of(lines: list[str], peer: _End, own: _End) -> Row | None:
    """Find the socket in a table of /proc/net."""
    ends = f":{peer[1]:04X}", f":{own[1]:04X}"
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or not (fields[1].endswith(ends[0]) and fields[2].endswith(ends[1])):
            continue
        if (_address_of(fields[1]), _address_of(fields[2])) == (peer[0], own[0]):
            return Row(int(fields[7]), int(fields[9]))
    return None


def _address_of(text: str) -> _Address:
    """Decode an address of 32-bit words, each in the host's byte order."""
    digits = text.partition(":")[0]
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return _plain(ip_address(struct.pack(f"={len(words)}I", *words)))
