"""A serial line over a socket in the file system, as a port of pyserial's."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from serial.urlhandler.protocol_socket import Serial

from edgekit.base.unix_sockets import reachable

SCHEME = "unix://"
_SECONDS_TO_CONNECT = 5.0


class UnixSerial(Serial):
    """pyserial's TCP port with another way to connect."""

    def open(self) -> None:
        self.logger = None
        path = Path(str(self.portstr).removeprefix(SCHEME))
        if not path.exists():
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_SECONDS_TO_CONNECT)
            with reachable(path) as name:
                self._socket.connect(name)
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self.is_open = True
