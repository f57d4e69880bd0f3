"""Trusted host keys, and the treatment of unknown ones.

edgekit keeps a known_hosts file of its own and honours the user's ~/.ssh/known_hosts, which it
never writes. A key becomes trusted only by the user's consent or by the fingerprint that they gave.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.files import exclusive_lock, storage_errors, write_atomically
from edgekit.base.options import option
from edgekit.base.paths import config_dir

if TYPE_CHECKING:
    from paramiko import HostKeys, PKey

KNOWN_HOSTS = "known_hosts"
_PREFIX = "SHA256:"


@dataclass(frozen=True)
class NewHostKey:
    """A host key that is not trusted yet."""

    host: str
    kind: str
    fingerprint: str


Ask = Callable[[NewHostKey], bool]
"""Callback that shows a new key to the user and returns their consent."""


def check_fingerprint(text: str) -> str:
    """Return a fingerprint as `ssh-keygen -l` prints it; UsageError for anything else."""
    body = text.removeprefix(_PREFIX)
    if len(body) != 43 or not body.replace("+", "a").replace("/", "a").isalnum():
        raise UsageError(
            f"{text!r} is not the fingerprint of a host key",
            hint="write it as the device's own `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` "
            "prints it: SHA256:…",
        )
    return _PREFIX + body


def fingerprint_of(key: PKey) -> str:
    fingerprint: str = key.fingerprint
    return fingerprint


class UntrustedHostKey(DeviceError):
    """The error for a host key that is not trusted. Trying again does not help."""


class KnownHosts:
    """The trusted host keys."""

    def __init__(self, own: Path | None = None, users: Path | None = None) -> None:
        self.own = own or config_dir() / KNOWN_HOSTS
        self._users = users or Path.home() / ".ssh" / KNOWN_HOSTS

    def keys_of(self, host: str) -> tuple[PKey, ...]:
        """Return every trusted key of a host. edgekit's own list wins if it has the host."""
        for file in (self.own, self._users):
            found = _read(file).lookup(host)
            if found:
                return tuple(found.values())
        return ()

    def check(
        self, host: str, key: PKey, *, ask: Ask | None = None, fingerprint: str | None = None
    ) -> None:
        """Return where `key` is to be trusted for `host`; DeviceError where it is not."""
        if any(key.asbytes() == one.asbytes() for one in self._revoked(host)):
            raise UntrustedHostKey(
                f"the host key of {host} is revoked: {fingerprint_of(key)}",
                hint=f"{self._users} says so; give the device a new key",
            )
        trusted = self.keys_of(host)
        if any(hmac.compare_digest(key.asbytes(), one.asbytes()) for one in trusted):
            if fingerprint is not None and fingerprint != fingerprint_of(key):
                raise _other_fingerprint(host, key, fingerprint)
            return
        if trusted:
            raise self._changed(host, key, trusted)
        met = NewHostKey(host, key.get_name(), fingerprint_of(key))
        if fingerprint is not None:
            if not hmac.compare_digest(fingerprint, met.fingerprint):
                raise _other_fingerprint(host, key, fingerprint)
        elif ask is None:
            raise _unknown(met)
        elif not ask(met):
            raise UntrustedHostKey(
                f"the host key of {host} was not accepted",
                hint="compare it with what the device itself prints: "
                "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
            )
        self._add(host, key)

    def forget(self, host: str) -> bool:
        """Remove a host from edgekit's own list; False if it was not listed."""
        return self._rewrite(lambda line: host not in line.split(" ")[0].split(","))

    def _revoked(self, host: str) -> tuple[PKey, ...]:
        found = _read(self._users, "@revoked ").lookup(host)
        return tuple(found.values()) if found else ()

    def _add(self, host: str, key: PKey) -> None:
        from paramiko.hostkeys import HostKeyEntry

        line = str(HostKeyEntry([host], key).to_line())
        with storage_errors("remember the host key", self.own):
            self.own.parent.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(self.own.with_suffix(".lock")):
                write_atomically(self.own, _text(self.own) + line)

    def _rewrite(self, keep: Callable[[str], bool]) -> bool:
        with storage_errors("change the known host keys", self.own):
            if not self.own.exists():
                return False
            with exclusive_lock(self.own.with_suffix(".lock")):
                lines = _text(self.own).splitlines(keepends=True)
                remaining = [line for line in lines if keep(line)]
                if len(remaining) == len(lines):
                    return False
                write_atomically(self.own, "".join(remaining))
                return True

    def _changed(self, host: str, key: PKey, trusted: tuple[PKey, ...]) -> UntrustedHostKey:
        own = bool(_read(self.own).lookup(host))
        file = self.own if own else self._users
        return UntrustedHostKey(
            f"the host key of {host} has changed: it is {fingerprint_of(key)}, "
            f"and {', '.join(fingerprint_of(one) for one in trusted)} was expected",
            hint="another machine may be in between; if the device was set up again, remove its "
            f"line from {file} and check the new key with `edgekit device check`",
        )


def _unknown(met: NewHostKey) -> UntrustedHostKey:
    return UntrustedHostKey(
        f"the host key of {met.host} is unknown: {met.kind} {met.fingerprint}",
        hint="compare it with what the device itself prints (ssh-keygen -lf "
        f"/etc/ssh/ssh_host_ed25519_key.pub), then give {option('fingerprint')} to `edgekit "
        "device add` or "
        "`edgekit device check`",
    )


def _other_fingerprint(host: str, key: PKey, expected: str) -> UntrustedHostKey:
    return UntrustedHostKey(
        f"the host key of {host} is {fingerprint_of(key)} ({key.get_name()}), "
        f"and {expected} was expected",
        hint="another machine may be in between, or the fingerprint is that of another of the "
        "device's keys",
    )


def _read(file: Path, marker: str = "") -> HostKeys:
    """Return the entries of a known_hosts file with that marker, or with none. Invalid lines are
    skipped."""
    from paramiko import HostKeys
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
    from paramiko.ssh_exception import SSHException

    keys = HostKeys()
    with storage_errors("read the known host keys", file):
        text = _text(file)
    for number, line in enumerate(text.splitlines(), 1):
        fields = " ".join(line.split())
        if not fields.startswith(marker):
            continue
        fields = fields[len(marker) :]
        if not fields or fields.startswith(("#", "@")):
            continue  # another marker: the key is not trusted by itself
        try:
            entry = HostKeyEntry.from_line(fields, number)
        except (InvalidHostKey, SSHException, ValueError):
            continue
        for host in entry.hostnames if entry is not None else ():
            keys.add(host, entry.key.get_name(), entry.key)
    return keys


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
