"""fabric's connection to a device: host keys, jump hosts, keys and users are edgekit's."""

from __future__ import annotations

import getpass
import shlex
from typing import TYPE_CHECKING, Any

import fabric
import paramiko
from fabric.runners import Remote

from edgekit.devices.linux.match_exec import IsolatedConfig
from edgekit.devices.linux.ssh_config import Hop, route_to
from edgekit.project.devices import SshEntry

if TYPE_CHECKING:
    from edgekit.devices.device import HasShell

# Without a terminal, an SSH server leaves a command running when its client is gone. Its parent is
# the server's process for this connection, so the command ends when that is gone.
_ENDS_WITH_CONNECTION = """\
exec 3<&0
if command -v setsid >/dev/null 2>&1; then setsid "${SHELL:-sh}" -c "$1" <&3 3<&- &
else "${SHELL:-sh}" -c "$1" <&3 3<&- & fi
p=$!
exec 3<&- </dev/null
{ while [ -d /proc/$PPID ] && kill -0 $p; do sleep 1; done
  kill -9 -$p || kill -9 $p; } >/dev/null 2>&1 &
wait $p"""


class DeviceConnection(fabric.Connection):  # type: ignore[misc] # fabric has no types
    """A connection that refuses unknown host keys, as `edgekit device check` would."""

    def __init__(self, device: HasShell, config: fabric.Config | None = None) -> None:
        entry = device.entry
        hop = route_to(entry)[-1] if isinstance(entry, SshEntry) else _named(device.name)
        # edgekit has read ~/.ssh/config; fabric would read it in its own way.
        chosen = config or fabric.Config(ssh_config=IsolatedConfig())
        super().__init__(hop.host, user=hop.user, port=hop.port, config=chosen)
        self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self._set(device=device, login=None)

    def open(self) -> None:
        """Log in, unless that is done."""
        if not self.is_connected:
            login = self.device.logged_in()
            self.client._transport = login.transport
            self._set(login=login, transport=login.transport)

    def close(self) -> None:
        super().close()
        if self.login is not None:
            self.login.close()
            self._set(login=None)

    def __repr__(self) -> str:
        return f"<DeviceConnection {self.device.name}>"

    def _remote_runner(self) -> Remote:
        return _Ending(context=self, inline_env=self.inline_ssh_env)


class _Ending(Remote):  # type: ignore[misc]
    """Runs commands that end with their connection."""

    def send_start_message(self, command: str) -> None:
        if not self.using_pty:
            words = ("sh", "-c", _ENDS_WITH_CONNECTION, "edgekit", command)
            command = " ".join(shlex.quote(word) for word in words)
        self.channel.exec_command(command)


def _named(name: str) -> Hop:
    """Return a place holder for a device that another host reaches."""
    return Hop(name, 22, getpass.getuser(), (), False, name)


def settings(hide: bool) -> fabric.Config:
    """Return fabric's settings for a task whose commands write nothing if `hide`."""
    overrides: dict[str, Any] = {"run": {"hide": hide, "in_stream": False}}
    return fabric.Config(ssh_config=IsolatedConfig(), overrides=overrides)
