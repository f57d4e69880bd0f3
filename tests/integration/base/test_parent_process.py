"""Processes that end with their parent, also with one that dies while they start."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import command_lines
from support.rpc_lab import eventually

import edgekit

AGENT_SOURCE = Path(edgekit.__file__).parent / "agent" / "src"
MOMENTS = random.Random(11)

PROGRAM = """
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "parent.h"

int main(int, char** argv) {
  if (strcmp(argv[1], "fork") == 0) {
    const pid_t parent = getpid();
    const bool late = strcmp(argv[2], "late") == 0;
    if (fork() != 0) {
      if (late) puts("forked");
      fflush(stdout);
      return static_cast<int>(sleep(20));
    }
    while (late && getppid() == parent) usleep(1000);
    edgekit::EndWithParent(parent, SIGKILL);
  } else {
    edgekit::EndWithParent(edgekit::StartedBy(), SIGKILL);
  }
  puts("alive");
  fflush(stdout);
  sleep(20);
}
"""

PYTHON = (
    "from edgekit.base.parent_process import end_with_parent\n"
    "end_with_parent()\nprint('alive', flush=True)\nimport time\ntime.sleep(20)"
)

START = (
    "import os, sys, subprocess\nfrom edgekit.base.parent_process import *\n"
    "words = sys.argv[2:]\n"
    "words = ending_with_us(words) if sys.argv[1] == 'words' else words\n"
    "hold = ['/bin/sh', '-c', 'read line; exec \"$@\"', 'hold']\n"
    "child = subprocess.Popen([*hold, *words], env={**os.environ, **parent_environment()})\n"
    "print('started', flush=True)\nchild.wait()\n"
)
"""A parent whose child does nothing before it hears a line on its stdin."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parent")
    (folder / "main.cc").write_text(PROGRAM)
    sources = [str(folder / "main.cc"), str(AGENT_SOURCE / "parent.cc")]
    made = folder / "ends-with-parent"
    words = ["g++", "-std=c++17", "-Wall", "-Werror", f"-I{AGENT_SOURCE}", *sources, "-o", made]
    subprocess.run(words, check=True)
    return made


def said_by_child(how: str, words: list[str], *, orphaned: bool) -> str:
    """What the child says that asks for its parent's death, of a parent that lives or is dead."""
    with subprocess.Popen(
        [sys.executable, "-c", START, how, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        if orphaned:
            parent.kill()
            parent.wait()
        parent.stdin.write("go\n")
        parent.stdin.flush()
        said = parent.stdout.readline()  # empty once nobody can write any more
        parent.kill()
        assert parent.stdout.read() == ""
    return said


@pytest.mark.parametrize("orphaned", [False, True])
@pytest.mark.parametrize("kind", ["python", "words", "c++"])
def test_a_child_whose_parent_died_while_it_started_ends(
    kind: str, orphaned: bool, program: Path
) -> None:
    if kind == "python":
        said = said_by_child("", [sys.executable, "-c", PYTHON], orphaned=orphaned)
    elif kind == "words":
        alive = ["/bin/sh", "-c", "echo alive; exec sleep 20"]
        said = said_by_child("words", alive, orphaned=orphaned)
    else:
        said = said_by_child("", [str(program), "started"], orphaned=orphaned)
    assert said == ("" if orphaned else "alive\n")


def test_a_fork_whose_parent_died_before_it_could_ask_ends(program: Path) -> None:
    for when, first in (("soon", b"alive\n"), ("late", b"forked\n")):
        with subprocess.Popen([program, "fork", when], stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == first
            parent.kill()
            assert parent.stdout.read() == b""


def running(mark: str) -> list[int]:
    return [pid for pid, words in command_lines().items() if mark in words]


def test_nothing_outlives_two_hundred_parents_that_are_killed_at_random_moments(
    program: Path,
) -> None:
    mark = f"mark-{os.getpid()}"
    starts = f"EDGEKIT_PARENT=$$; export EDGEKIT_PARENT; {program} started {mark} & wait"
    for words in ([str(program), "fork", "soon", mark], ["/bin/sh", "-c", starts]):
        for _ in range(100):
            with subprocess.Popen(words, stdout=subprocess.DEVNULL) as parent:
                time.sleep(MOMENTS.random() * 0.004)
                parent.kill()
    eventually(lambda: not running(mark))
