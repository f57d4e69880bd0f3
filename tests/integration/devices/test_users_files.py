"""The user's own commands and files on devices: what arrives, and what a failure leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.building import Ran, command_line, environment, run_edgekit
from support.busybox_device import busybox_device
from support.needs import needs
from support.rpc_lab import eventually
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import Event, Events, StageProgress
from edgekit.devices.linux.connection import Connection
from edgekit.devices.linux.user_files import fetch_files, run_command, send_files


@pytest.fixture(
    params=[
        pytest.param("openssh", marks=needs("sshd")),
        pytest.param("busybox", marks=needs("dropbear", "busybox", "mounts", "root")),
    ]
)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SshServer]:
    start = ssh_server if request.param == "openssh" else busybox_device
    with start(tmp_path / "ssh") as running:
        yield running


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "täler 山"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a b.txt").write_text("über")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    (folder / ".hidden").write_bytes(os.urandom(300_000))
    return folder


def contents(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    return {str(path.relative_to(folder)): content(path) for path in folder.rglob("*")}


def content(path: Path) -> tuple[int, bytes | str]:
    mode = path.lstat().st_mode
    if path.is_symlink():
        return mode, str(path.readlink())
    return mode, path.read_bytes() if path.is_file() else ""


def said(device: Connection, script: str) -> str:
    """What a script in the device's home folder prints."""
    return run_command(device, ("sh", "-c", f"cd; {script}")).output


def test_a_folder_comes_back_as_it_was_sent(server: SshServer, tree: Path, tmp_path: Path) -> None:
    with server.connect() as device:
        sent = send_files(device, [tree], "data/below/")
        got = fetch_files(device, f"data/below/{tree.name}", tmp_path / "back")

        assert contents(tmp_path / "back") == contents(tree)
        assert sent.files == got.files == 4
        assert sent.bytes == got.bytes == 300_000 + len("über".encode()) + 19
        # Again, onto what is there: files are replaced, others stay.
        (tree / "deep" / "a b.txt").write_text("new")
        said(device, f"echo other >'data/below/{tree.name}/deep/other'")
        send_files(device, [tree], "data/below")
        assert said(device, f"cat 'data/below/{tree.name}/deep/'*") == "newother"
        assert said(device, "cd data/below; echo * .edgekit*") == f"{tree.name} .edgekit*"


def test_a_single_file_takes_the_name_of_the_target(
    server: SshServer, tree: Path, tmp_path: Path
) -> None:
    with server.connect() as device:
        send_files(device, [tree / "run.sh"], "~/tool")
        assert said(device, "./tool") == "ran"
        send_files(device, [tree / "run.sh", tree / "deep"], "~")
        assert said(device, "cat deep/*; ./run.sh") == "überran"
        fetch_files(device, "tool", tmp_path)
    assert (tmp_path / "tool").read_text() == (tree / "run.sh").read_text()


def test_what_cannot_be_copied_leaves_nothing(
    server: SshServer, tree: Path, tmp_path: Path
) -> None:
    with server.connect() as device:
        said(device, "echo text >file")
        with pytest.raises(DeviceError, match="could not store the files"):
            send_files(device, [tree], "file/below/")
        with pytest.raises(DeviceError, match=r"there is no \./nothing"):
            fetch_files(device, "nothing", tmp_path / "new")
        fetch_files(device, "file", tree)
        with pytest.raises(UsageError, match="exists already"):
            fetch_files(device, "file", tree)
        with pytest.raises(UsageError, match="there is no file"):
            send_files(device, [tree / "missing"], "kept")
        with pytest.raises(UsageError, match="same name"):
            send_files(device, [tree / "run.sh", tree / "run.sh"], "kept")
        names = said(device, "ls -A").split("\n")
    assert "kept" not in names
    assert not [name for name in names if name.startswith(".edgekit-")]
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".*edgekit*"))


@needs("sshd")
def test_a_transfer_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 30)  # zeros, which take no space
    with ssh_server(tmp_path / "ssh") as server, server.connect() as device:
        (server.home / "large").write_text("old")

        def cut(event: Event) -> None:
            if isinstance(event, StageProgress) and event.done:
                server.drop_connections()

        with pytest.raises(DeviceError, match="was lost"):
            send_files(device, [large], "large", Events(cut))
        eventually(lambda: not list(server.home.glob(".edgekit-*")))
        assert (server.home / "large").read_text() == "old"


@needs("sshd")
@pytest.mark.parametrize("name", ["../../out", "/tmp/edgekit-out"])
def test_a_device_cannot_write_outside_of_the_target(tmp_path: Path, name: str) -> None:
    hostile = tmp_path / "bin"
    hostile.mkdir()
    with tarfile.open(tmp_path / "evil", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    (hostile / "tar").write_text(f"#!/bin/sh\ncat {tmp_path}/evil\n")
    (hostile / "tar").chmod(0o755)
    path = f"PATH={hostile}:{os.environ['PATH']}"
    with ssh_server(tmp_path / "ssh", environment=path) as server, server.connect() as device:
        said(device, "mkdir data")
        with pytest.raises(DeviceError, match=r"would lie elsewhere|could not read"):
            fetch_files(device, "data", tmp_path / "inner" / "data")
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/edgekit-out").exists()
    assert not list((tmp_path / "inner").iterdir())


@needs("sshd")
def test_the_command_line_works_on_several_devices(tmp_path: Path) -> None:
    home = tmp_path / "user"
    (home / ".git").mkdir(parents=True)
    extra = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "SSH_AUTH_SOCK": ""}

    def edgekit(*words: str) -> Ran:
        return run_edgekit("device", *words, folder=home, extra=extra)

    with ssh_server(tmp_path / "one") as one, ssh_server(tmp_path / "two") as two:
        for name, server in (("one", one), ("two", two)):
            address = f"{server.user}@127.0.0.1:{server.port}"
            words = ("add", name, address, "--board", "local", "--key", server.key)
            assert edgekit(*words, "--fingerprint", server.fingerprint).code == 0

        (home / "note").write_text("text")
        assert edgekit("push", "--all", "note", "notes/").code == 0
        assert (two.home / "notes" / "note").read_text() == "text"
        (two.home / "notes" / "note").write_text("other")
        assert edgekit("pull", "--board", "local", "notes/note", "got").code == 0
        assert (home / "got" / "one" / "note").read_text() == "text"
        assert (home / "got" / "two" / "note").read_text() == "other"

        ran = edgekit(
            "exec", "--device", "one", "--", "sh", "-c", "echo $0 '$x'; echo e >&2", "a b"
        )
        assert (ran.code, ran.out) == (0, "a b $x\ne\n")
        ran = edgekit("exec", "--all", "--json", "--", "sh", "-c", "cat $HOME/notes/note; exit 3")
        assert ran.code == 10
        report = json.loads(ran.out)
        assert [(d["device"], d["report"]["output"]) for d in report["devices"]] == [
            ("one", "text"),
            ("two", "other"),
        ]
        assert "one (3), two (3)" in ran.err
        assert edgekit("exec", "--", "true").code == 2  # which of two is not said
        assert edgekit("shell", "--device", "one").code == 2  # there is no terminal

        # Ctrl-C ends the command on the device too.
        process = subprocess.Popen(
            command_line("device", "exec", "--device", "one", "--", "sleep", "7654.25"),
            cwd=home, env=environment(extra), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        eventually(lambda: running("sleep 7654.25"))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
        eventually(lambda: not running("sleep 7654.25"))


def running(command: str) -> bool:
    words = command.replace(" ", "\0").encode() + b"\0"
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if process.read_bytes() == words:
                return True
        except OSError:
            continue
    return False
