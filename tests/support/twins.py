"""Twins for tests: in a cache of their own, gone afterwards whatever happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.base.errors import EdgekitError
from edgekit.twin import qemu, qmp
from edgekit.twin.access import Access
from edgekit.twin.image import ensure_image
from edgekit.twin.machine import all_twins, down, machines_dir, twin_folder
from edgekit.twin.recipe import Recipe, default_recipe
from edgekit.twin.tools import TO_BUILD, find_tool, to_run
from support.libraries import share_agents
from support.needs import whole_mirror
from support.session import shared_cache

COMMAND_SECONDS = 600


def shared_image(recipe: Recipe) -> Path:
    """Return the folder of an image in the user's cache, built if it is missing: a minute each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE_DIR", str(shared_cache()))
        return ensure_image(recipe).folder


def share_images(cache: Path, *recipes: Recipe) -> None:
    """Let a cache for tests have images of the user's own cache, and the agents. The shared twin's
    image where none is named."""
    if any(find_tool(tool.name) is None for tool in (*to_run("aarch64"), *TO_BUILD)):
        return  # the tests say so, and skip
    (cache / "twins").mkdir(parents=True, exist_ok=True)
    for recipe in recipes or (default_recipe(),):
        with whole_mirror():
            shared = shared_image(recipe)
        (cache / "twins" / shared.name).symlink_to(shared)
        log = shared.with_suffix(".log")
        if log.is_file():
            (cache / "twins" / log.name).symlink_to(log)
    share_agents(cache)


@contextmanager
def twins_in(cache: Path) -> Iterator[None]:
    """Twins live in `cache` while the block runs, and are gone after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE_DIR", str(cache))
        try:
            yield
        finally:
            remove_all_twins()


def remove_all_twins() -> None:
    for process in qemu.running():
        if process.folder.parent == machines_dir():
            qemu.kill(process)
    for twin in all_twins():
        with suppress(EdgekitError):
            down(twin.name, delete=True)


def edgekit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """edgekit in a process of its own."""
    return subprocess.run(
        edgekit_command(*arguments), capture_output=True, text=True, timeout=COMMAND_SECONDS
    )


def edgekit_json(*arguments: str) -> Any:
    answer = edgekit(*arguments, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def edgekit_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "edgekit", *arguments]


def on_twin(access: Access, command: str) -> str:
    """What a command on the twin prints."""
    answer = subprocess.run(
        access.command(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def processes_with(text: str) -> list[str]:
    """Command lines of running processes that mention `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                said = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                line = said.decode(errors="replace")
                if text in line:
                    found.append(line)
    return found


def pause(name: str) -> None:
    """Stop a twin's clock and CPUs: a board that hangs."""
    _control(name, "stop")


def resume(name: str) -> None:
    _control(name, "cont")


def _control(name: str, command: str) -> None:
    with qmp.connected(twin_folder(name) / qemu.QMP_SOCKET) as control:
        control.execute(command)
