"""The host's programs that a twin needs: finding and running them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgekit.base.children import NOTHING, PIPE, Process, Streams, TimeoutExpired, end, start
from edgekit.base.errors import BuildError, MissingToolError, StorageError
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.parent_process import ending_with_us
from edgekit.base.programs import find_program
from edgekit.base.wording import duration
from edgekit.profiles.architecture import architectures

_LAST_LINES = 15
_SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")
"""Folders that Debian leaves out of ordinary users' PATH. mke2fs is in one and needs no root."""


@dataclass(frozen=True)
class HostTool:
    """A program and its Debian package."""

    name: str
    package: str


TO_REACH = (HostTool("ssh", "openssh-client"), HostTool("ssh-keygen", "openssh-client"))
TO_BUILD = (
    HostTool("apt-get", "apt"),
    HostTool("apt-config", "apt"),
    HostTool("dpkg-deb", "dpkg"),
    HostTool("tar", "tar"),
    HostTool("mke2fs", "e2fsprogs"),
    HostTool("debugfs", "e2fsprogs"),
    HostTool("setpriv", "util-linux"),
)


def to_run(arch: str) -> tuple[HostTool, ...]:
    """Return the programs that the twin of a Linux board needs."""
    qemu = architectures()[arch].qemu
    return (HostTool(qemu.system, qemu.package), HostTool("qemu-img", "qemu-utils"), *TO_REACH)


def find_tool(name: str) -> Path | None:
    """Find a program on PATH or in the system's folders."""
    return find_program(name, _SYSTEM_FOLDERS)


def require_tools(tools: Sequence[HostTool], purpose: str) -> None:
    """Raise MissingToolError that names every missing program."""
    missing = [tool for tool in tools if find_tool(tool.name) is None]
    if missing:
        packages = " ".join(sorted({tool.package for tool in missing}))
        raise MissingToolError(
            f"{purpose} needs {', '.join(tool.name for tool in missing)}: not found on this host",
            hint=f"sudo apt-get install --no-install-recommends {packages}",
        )


class BuildTools:
    """The tools of an image build. Their output goes to a log; they end with edgekit, even if it is
    killed."""

    def __init__(
        self,
        log: IO[bytes],
        environment: Mapping[str, str] | None = None,
        *,
        advice: str = "edgekit twin logs --build shows the tools' output",
    ) -> None:
        self._log = log
        self._advice = advice
        self._environment = {**os.environ, "LC_ALL": "C", **(environment or {})}

    def with_environment(self, environment: Mapping[str, str]) -> BuildTools:
        """Return the same tools with more environment variables."""
        merged = {**self._environment, **environment}
        return BuildTools(self._log, merged, advice=self._advice)

    def run(self, command: Sequence[str], *, doing: str, folder: Path, limit_s: float) -> None:
        """Run a tool; raise BuildError if it fails."""
        with self.started(command, folder=folder) as process:
            self._wait(process, command, doing, limit_s)

    def answer(self, command: Sequence[str], *, doing: str, folder: Path, limit_s: float) -> str:
        """Run a tool and return its output."""
        with self.started(command, folder=folder, stdout=PIPE) as process:
            try:
                output = process.communicate(timeout=limit_s)[0]
            except TimeoutExpired as error:
                raise self.too_slow(command, doing, limit_s) from error
        self.check(process.returncode, command, doing)
        return output.decode(errors="replace")

    def pipe(
        self,
        source: Sequence[str],
        sink: Sequence[str],
        *,
        doing: str,
        folder: Path,
        limit_s: float,
    ) -> None:
        """Run `source | sink`; raise BuildError if either fails."""
        with self.started(source, folder=folder, stdout=PIPE) as first:
            assert first.stdout is not None
            with self.started(sink, folder=folder, stdin=first.stdout) as second:
                first.stdout.close()  # only the sink keeps it, so that the source sees the sink end
                self._wait(second, sink, doing, limit_s)
            self._wait(first, source, doing, limit_s)

    @contextmanager
    def started(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        stdin: int | IO[bytes] = NOTHING,
        stdout: int | IO[bytes] | None = None,
    ) -> Iterator[Process]:
        """Start a tool for the time of the block; its output goes to the log by default."""
        self._log.write(f"$ {' '.join(command)}\n".encode())
        self._log.flush()
        with ExitStack() as ending:
            with interrupts_deferred():
                process = start(
                    ending_with_us([_path(command[0]), *command[1:]]),
                    folder=folder,
                    streams=Streams(stdin, self._log if stdout is None else stdout, self._log),
                    environment=self._environment,
                )
                ending.callback(end, process)
            yield process

    def check(self, status: int, command: Sequence[str], doing: str) -> None:
        """Raise an error with the log's last lines if a tool failed."""
        if status == 0:
            return
        lines = self._last_lines()
        if any(os.strerror(errno.ENOSPC) in line for line in lines):
            raise StorageError(
                f"the disk is full: could not {doing}",
                hint="building a twin's image takes 500 MB; free some space, or move the cache"
                " with EDGEKIT_CACHE_DIR",
            )
        how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
        raise BuildError(
            f"{command[0]} {how}: could not {doing}",
            hint=self._advice,
            details=lines,
        )

    def too_slow(self, command: Sequence[str], doing: str, limit_s: float) -> BuildError:
        """Make the error for a tool that takes too long."""
        return BuildError(
            f"{command[0]} was still not done after {duration(limit_s)}: could not {doing}",
            hint=f"check the network and try again; {self._advice}",
            details=self._last_lines(),
        )

    def _wait(self, process: Process, command: Sequence[str], doing: str, limit_s: float) -> None:
        try:
            status = process.wait(limit_s)
        except TimeoutExpired as error:
            raise self.too_slow(command, doing, limit_s) from error
        self.check(status, command, doing)

    def _last_lines(self) -> tuple[str, ...]:
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").splitlines()
        return tuple(line for line in lines if line.strip())[-_LAST_LINES:]


def _path(name: str) -> str:
    found = find_tool(name)
    if found is None:
        raise MissingToolError(
            f"{name} is gone from this host", hint="install it again, then try again"
        )
    return str(found)
