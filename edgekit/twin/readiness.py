"""Waiting until a twin answers, and explaining why it does not."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from edgekit.base.children import TimeoutExpired, run
from edgekit.base.errors import DeviceError
from edgekit.base.events import Events
from edgekit.base.wording import duration
from edgekit.twin import qemu
from edgekit.twin.access import Access
from edgekit.twin.tools import find_tool

_BETWEEN_SECONDS = 0.1
_GREETING_SECONDS, _PATIENT_GREETING_SECONDS = 1.0, 15.0
_SECONDS_TO_BOOT = 20.0
_LOGIN_SECONDS = 60.0
_CONSOLE_LINES = 12


def wait_until_ready(
    access: Access,
    folder: Path,
    process: qemu.Process | None,
    limit_s: float,
    events: Events,
    *,
    known_to_work: bool = False,
) -> None:
    """Wait until a command runs over SSH; raise DeviceError with the console's last lines if not.

    For a twin `known_to_work`, sshd's greeting is enough: a login takes most of a second.
    """
    ends_at = time.monotonic() + limit_s
    # A connection made too early in the boot never gets an answer, so early ones are short. But
    # each starts a server: too many keep an overloaded system from answering at all.
    patient_from = time.monotonic() + (0 if known_to_work else _SECONDS_TO_BOOT)
    with events.stage(f"start {access.name}") as stage:
        while not _greets(access, time.monotonic() >= patient_from):
            if process is None or qemu.wait_until_gone(process, _BETWEEN_SECONDS):
                raise _failure(f"the twin {access.name} stopped while it was starting", folder)
            if time.monotonic() > ends_at:
                raise _failure(
                    f"the twin {access.name} does not answer after {duration(limit_s)}", folder
                )
        if not known_to_work:
            run_over_ssh(access, "true", limit_s=_LOGIN_SECONDS)
        stage.result = f"ssh on {access.host}:{access.port}"


def run_over_ssh(access: Access, command: str, *, limit_s: float) -> None:
    """Run a command on a twin; raise DeviceError with ssh's output if it fails."""
    ssh = find_tool("ssh")
    assert ssh is not None, "require_tools comes first"
    try:
        ended = run(
            [str(ssh), "-o", "BatchMode=yes", *access.command(command)[1:]], limit_s=limit_s
        )
    except TimeoutExpired as error:
        raise DeviceError(
            f"the twin {access.name} does not answer over SSH for {duration(limit_s)}",
            hint=f"edgekit twin logs {access.name} shows its console",
        ) from error
    if ended.status != 0:
        said = ended.errors.strip()
        raise DeviceError(
            f"a command on the twin {access.name} failed over SSH",
            hint=f"edgekit twin up {access.name} --fresh starts it with a new disk",
            details=tuple(said.splitlines()[-_CONSOLE_LINES:]),
        )


def _greets(access: Access, patient: bool) -> bool:
    """Tell whether sshd sends its greeting. QEMU accepts connections long before sshd does."""
    try:
        seconds = _PATIENT_GREETING_SECONDS if patient else _GREETING_SECONDS
        with socket.create_connection((access.host, access.port), seconds) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _failure(message: str, folder: Path) -> DeviceError:
    try:
        text = (folder / qemu.CONSOLE).read_text(errors="replace")
    except OSError:
        text = ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return DeviceError(
        message,
        hint=f"edgekit twin logs {folder.name} shows its console; edgekit twin up {folder.name}"
        " --fresh starts it with a new disk",
        details=tuple(lines[-_CONSOLE_LINES:]),
    )
