"""Commands where a process may open few files or use little memory: the limit is named."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.building import write_model
from support.needs import needs

LIMIT = 13


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "command", "raise_it"),
    [
        ("-n 8", "build model.onnx --board local -o out", "ulimit -n"),
        ("-n 8", "deploy model.onnx --board local", "ulimit -n"),
        ("-n 8", "doctor", "ulimit -n"),
        ("-v 300000", "inspect model.onnx", "ulimit -v"),
        ("-v 300000", "build model.onnx --board local -o out", "ulimit -v"),
        ("-v 180000", "inspect model.onnx", "ulimit -v"),
        ("-v 100000", "boards", "ulimit -v"),
        ("-n 8", "rpc tracker", "ulimit -n"),
    ],
)
def test_a_limit_that_is_too_small_is_named_with_the_command_that_raises_it(
    limit: str, command: str, raise_it: str, work: Path
) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"ulimit {limit} && exec {sys.executable} -m edgekit {command} --json"],
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "EDGEKIT_CACHE_DIR": str(work / "c"), "EDGEKIT_STORE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == LIMIT, ran.stderr
    assert "Traceback" not in ran.stderr
    error = json.loads(ran.stdout)["error"]
    assert error["type"] == "ResourceError"
    assert raise_it in error["hint"]
    assert not (work / "out").exists()


@pytest.mark.parametrize(
    ("limit", "command"), [("-n 8", "boards"), ("-n 8", "--version"), ("-v 300000", "boards")]
)
def test_what_needs_little_works_under_the_same_limits(limit: str, command: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"ulimit {limit} && exec {sys.executable} -m edgekit {command}"],
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 0


def doctor(work: Path, before: str, *shell: str, **variables: str) -> list[dict[str, str]]:
    """List what the doctor finds missing that a build requires."""
    ran = subprocess.run(
        [*shell, "bash", "-c", f"{before} && exec {sys.executable} -m edgekit doctor --json"],
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "EDGEKIT_CACHE_DIR": str(work / "c"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    checks = json.loads(ran.stdout)["checks"]
    return [check for check in checks if not check["ok"] and check["required"]]


@pytest.mark.parametrize(
    ("limit", "raise_it"), [("-n 11", "ulimit -n"), ("-v 200000", "ulimit -v")]
)
def test_the_doctor_tells_to_raise_a_limit_and_not_to_install_what_is_there(
    limit: str, raise_it: str, work: Path
) -> None:
    missing = doctor(work, f"ulimit {limit}")

    assert missing, "the limit is no longer too small for anything: choose a smaller one"
    for check in missing:
        assert raise_it in check["fix"]
        assert "install" not in check["fix"]


@needs("root")
def test_the_doctor_tells_to_free_space_and_not_to_install_what_is_there(work: Path) -> None:
    (work / "t").mkdir()
    mount = f"mount -t tmpfs -o size=4k none {work}/t"
    missing = doctor(work, mount, "unshare", "--mount", TMPDIR=str(work / "t"))

    assert missing
    for check in missing:
        assert "free some space" in check["fix"]


_AS_ANOTHER_USER = """
import os, resource, sys
from edgekit.cli.program import run_command_line
from edgekit.cli import doctor
import edgekit.advice.doctor, edgekit.rpc.tracker
import edgekit.base.children, edgekit.base.parent_process
limit, *command = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NPROC, (int(limit), int(limit)))
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
edgekit.base.children._located = list
sys.exit(run_command_line(command))
"""


@needs("root")
@pytest.mark.parametrize("command", ["doctor --json", "rpc tracker --json"])
def test_a_limit_of_processes_is_named(command: str) -> None:
    """Root has no such limit. The other user can't look into this Python's folder: programs are
    started by their paths, and the kernel refuses the process before it opens them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o777)
        ran = subprocess.run(
            [sys.executable, "-c", _AS_ANOTHER_USER, "1", *command.split()],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": "/tmp"},
            capture_output=True,
            text=True,
            check=False,
        )

    assert ran.returncode == LIMIT, ran.stdout + ran.stderr
    error = json.loads(ran.stdout)["error"]
    assert "limit of processes is too small" in error["message"]
    assert "ulimit -u" in error["hint"]


_OPENBLAS = """
import os, resource
from edgekit.base.limits import explained_interrupt, refuse_hopeless_limits
import edgekit.base.errors
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
os.setuid(54321)
refuse_hopeless_limits()
print(os.environ["OPENBLAS_NUM_THREADS"], explained_interrupt())
"""


@needs("root")
def test_numpy_starts_no_thread_where_none_may_run_and_its_interrupt_is_explained() -> None:
    """OpenBLAS sends its own process SIGINT where it can't start its threads."""
    told = subprocess.run(
        [sys.executable, "-c", _OPENBLAS], capture_output=True, text=True, check=True
    ).stdout

    assert told.startswith("1 the limit of processes is too small")
