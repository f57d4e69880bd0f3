"""Reads addresses of artifacts: oci://HOST[:PORT]/NAME:TAG."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from edgekit.base.errors import UsageError

SCHEME = "oci://"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_ADDRESS = re.compile(
    rf"oci://(?P<host>\[[0-9a-fA-F:]{{2,39}}\]|[A-Za-z0-9.-]{{1,253}})(?::(?P<port>[0-9]{{1,5}}))?"
    rf"/(?P<name>{_PART}(?:/{_PART})*):(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})"
)
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST = 1000
_LARGEST_PORT = 65_535


@dataclass(frozen=True)
class Address:
    """The place of an artifact."""

    host: str
    """The host, with its port if there is one."""
    name: str
    """The repository's name, such as `team/kitchen`."""
    tag: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}/{self.name}:{self.tag}"

    @property
    def is_loopback(self) -> bool:
        """Whether the registry runs on this machine."""
        bare = re.sub(r":[0-9]+$", "", self.host).strip("[]")
        if bare == "localhost":
            return True
        try:
            return ipaddress.ip_address(bare).is_loopback
        except ValueError:
            return False


def parse_rollout(repository: str, channel: str) -> Address:
    """Return the address of a channel's rollout in a repository, oci://HOST[:PORT]/NAME."""
    if not _CHANNEL.fullmatch(channel):
        raise UsageError(
            f"{channel[:80]!r} is not the name of a channel",
            hint="use letters, digits, dots, underscores and hyphens, at most 64",
        )
    return parse_address(f"{repository}:rollout-{channel}")


def parse_address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or int(found["port"] or 1) not in range(1, _LARGEST_PORT + 1):
        shown = text.rpartition("@")[2] if "@" in text else text
        raise UsageError(
            f"{shown[:200]!r} is not the address of an artifact",
            hint="write oci://HOST[:PORT]/NAME:TAG, with a NAME in small letters and no password",
        )
    port = f":{found['port']}" if found["port"] else ""
    return Address(found["host"] + port, found["name"], found["tag"])
