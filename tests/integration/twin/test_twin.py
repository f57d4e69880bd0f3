"""Twins for real: QEMU, Debian, sshd. The image is built once for all tests here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.needs import TWIN, needs
from support.rpc_lab import eventually
from support.source import ROOT
from support.twins import (
    edgekit,
    edgekit_command,
    edgekit_json,
    on_twin,
    pause,
    processes_with,
    remove_all_twins,
    share_images,
    twins_in,
)

from edgekit.profiles.board import load_board
from edgekit.twin.machine import (
    Started,
    StartOptions,
    all_twins,
    down,
    machines_dir,
    status,
    twin_folder,
    up,
)
from edgekit.twin.qemu import running

pytestmark = [
    pytest.mark.slow,
    needs(*TWIN),
]

RPI4 = load_board("rpi4")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("twins")
    share_images(folder)
    with twins_in(folder):
        yield folder


def test_commands_files_and_fabfiles_work_on_a_twin(no_twins: None, tmp_path: Path) -> None:
    where = ("--board", "rpi4", "--twin")
    told = edgekit("device", "exec", *where, "--", "uname", "-m")
    assert (told.returncode, told.stdout) == (0, "aarch64\n"), told.stderr
    (tmp_path / "settings.conf").write_text("lights")
    edgekit_json("device", "push", *where, str(tmp_path / "settings.conf"), "/var/tmp/kitchen/")
    edgekit_json("device", "pull", *where, "/var/tmp/kitchen", str(tmp_path / "back"))
    assert (tmp_path / "back" / "settings.conf").read_text() == "lights"
    fabfile = str(ROOT / "examples" / "fabfile.py")
    told = edgekit_json("device", "provision", *where, fabfile)
    assert told["devices"][0]["report"]["tasks"] == ["report", "prepare"]


@pytest.fixture
def no_twins() -> Iterator[None]:
    remove_all_twins()
    yield
    remove_all_twins()


@pytest.fixture
def twin() -> Started:
    """One that runs, left by the test before if that was kind to it."""
    return up("kitchen", RPI4)


def _pid(name: str) -> int:
    pid = status(name).pid
    assert pid is not None
    return pid


def test_the_image_of_a_running_twin_is_not_pruned(twin: Started) -> None:
    pruned = edgekit_json("cache", "prune", "--all")

    assert [entry["kind"] for entry in pruned["in_use"]] == ["twin image"]
    assert pruned["removed"] == []
    assert on_twin(twin.access, "cat /etc/hostname")


def test_a_twin_is_the_board_over_ssh() -> None:
    started = edgekit_json("twin", "up", "rpi4", "--name", "kitchen")
    assert started["board"] == "rpi4"
    answer = edgekit("twin", "ssh", "kitchen", "uname -m; id -un; id -u; grep part /proc/cpuinfo")
    machine, user, number, *parts = answer.stdout.split("\n", 3)
    assert (machine, user, number) == ("aarch64", "edgekit", "1000")
    assert "0xd08" in parts[0]  # Cortex-A72


def test_a_twin_that_is_named_like_a_device_is_told_how_to_name(twin: Started) -> None:
    named = edgekit("logs", "--device", "kitchen")
    assert named.returncode == 2
    assert "say --board rpi4 --twin --device kitchen" in named.stderr

    meant = edgekit("logs", "--twin", "--device", "kitchen")
    assert (meant.returncode, meant.stdout) == (0, "the log of kitchen is empty\n")


def test_the_exit_status_of_a_remote_command_is_the_commands(twin: Started) -> None:
    assert edgekit("twin", "ssh", "kitchen", "exit 7").returncode == 7


def test_a_twin_has_what_a_model_needs(twin: Started) -> None:
    said = on_twin(
        twin.access,
        "echo $TVM_THREAD_POOL_SPIN_COUNT; ls /usr/lib/aarch64-linux-gnu/; command -v rsync free",
    )
    assert said.startswith("0\n")
    for needed in ("libstdc++.so.6", "libgomp.so.1", "libgcc_s.so.1", "rsync", "free"):
        assert needed in said


def test_the_user_may_do_everything_and_root_cannot_log_in(twin: Started) -> None:
    assert on_twin(twin.access, "sudo id -u").strip() == "0"
    command = twin.access.command("true")
    as_root = subprocess.run([command[0], "-l", "root", *command[1:]], capture_output=True)
    assert as_root.returncode == 255


def test_the_clock_is_the_hosts(twin: Started) -> None:
    assert abs(int(on_twin(twin.access, "date +%s")) - time.time()) < 60


def test_every_file_belongs_to_whom_it_should(twin: Started) -> None:
    """The image is made by an ordinary user; inside, everything is root's but these."""
    strangers = on_twin(
        twin.access,
        "sudo find / -xdev ! -path '/tmp*' '(' -uid +0 -o -gid +0 ')' -printf '%p %u %g\\n'",
    )
    assert sorted(strangers.splitlines()) == [
        "/etc/shadow root shadow",
        "/home/edgekit edgekit edgekit",
        "/usr/sbin/unix_chkpwd root shadow",
    ]


def test_a_twin_reaches_nothing_by_itself(twin: Started) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = on_twin(
            twin.access,
            f"timeout 5 bash -c 'exec 3<>/dev/tcp/10.0.2.2/{port}' 2>/dev/null"
            " && echo reached || echo nothing",
        )
    assert said.strip() == "nothing"


def test_a_second_up_finds_it_running(twin: Started) -> None:
    before = _pid("kitchen")
    again = up("kitchen", RPI4)
    assert again.already_running
    assert _pid("kitchen") == before
    assert again.access == twin.access


def test_a_name_is_not_taken_over_by_another_board(twin: Started) -> None:
    answer = edgekit("twin", "up", "rpi3", "--name", "kitchen")
    assert answer.returncode == 2
    assert "the twin kitchen is one of the board rpi4" in answer.stderr


def test_a_changed_host_key_is_refused(twin: Started) -> None:
    other = twin.access.known_hosts.with_name("other")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    key = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    other.unlink()
    twin.access.known_hosts.write_text(f"[127.0.0.1]:{twin.access.port} {key}\n")
    refused = subprocess.run(twin.access.command("true"), capture_output=True, text=True)
    assert refused.returncode == 255
    assert "verification failed" in refused.stderr
    up("kitchen", RPI4)  # writes what it knows to be right
    assert on_twin(twin.access, "echo hello") == "hello\n"


def test_keys_are_nobody_elses(twin: Started) -> None:
    assert twin.access.key.stat().st_mode & 0o777 == 0o600
    assert twin_folder("kitchen").stat().st_mode & 0o777 == 0o700


def test_two_twins_at_once_share_nothing_but_the_image(twin: Started) -> None:
    other = up("garden", load_board("rpi3"))
    assert other.access.port != twin.access.port
    assert other.access.host_key != twin.access.host_key
    assert other.access.key.read_text() != twin.access.key.read_text()
    on_twin(other.access, "echo garden > mine")
    assert on_twin(twin.access, "hostname; ls").split() == ["kitchen"]
    assert "0xd03" in on_twin(other.access, "cat mine; grep part /proc/cpuinfo")  # Cortex-A53
    assert {t.name for t in all_twins() if t.condition == "running"} == {"kitchen", "garden"}
    assert down("garden", delete=True).how == "powered off"
    assert [t.name for t in all_twins()] == ["kitchen"]


def test_a_paused_twin_is_said_to_be_and_goes_on(twin: Started) -> None:
    pause("kitchen")
    assert status("kitchen").condition == "paused"
    assert up("kitchen", RPI4).already_running
    assert status("kitchen").condition == "running"


def test_a_killed_twin_is_said_to_have_died_and_comes_back_with_its_disk(twin: Started) -> None:
    on_twin(twin.access, "echo precious > kept; sync")
    pid = _pid("kitchen")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(process.pid != pid for process in running()))
    table = edgekit("twin", "status").stdout
    assert "died" in table
    assert edgekit("twin", "ssh", "kitchen", "true").returncode == 8
    again = up("kitchen", RPI4)
    assert not again.already_running
    assert again.access.host_key == twin.access.host_key
    assert on_twin(again.access, "cat kept") == "precious\n"


def test_down_leaves_nothing_running_and_keeps_the_disk(twin: Started) -> None:
    on_twin(twin.access, "echo precious > kept-too")
    answer = edgekit_json("twin", "down", "kitchen")
    assert answer["twins"] == [{"name": "kitchen", "how": "powered off", "deleted": False}]
    assert processes_with(str(machines_dir())) == []
    assert status("kitchen").condition == "stopped"
    assert down("kitchen").how == "was not running"
    assert on_twin(up("kitchen", RPI4).access, "cat kept-too") == "precious\n"


def test_fresh_forgets_the_disk(twin: Started) -> None:
    on_twin(twin.access, "echo gone > gone; sync")
    again = up("kitchen", RPI4, StartOptions(fresh=True))
    assert on_twin(again.access, "ls") == ""


def test_a_taken_port_is_left_alone(twin: Started) -> None:
    down("kitchen")
    with socket.create_server(("127.0.0.1", twin.access.port)):
        moved = up("kitchen", RPI4)
        assert moved.access.port != twin.access.port
        assert on_twin(moved.access, "echo hello") == "hello\n"


def test_the_console_can_be_read(twin: Started) -> None:
    assert "Server listening" in edgekit("twin", "logs", "kitchen").stdout
    assert "mke2fs" in edgekit("twin", "logs", "--build").stdout


def test_a_twin_whose_edgekit_was_killed_is_taken_over(no_twins: None) -> None:
    starting = subprocess.Popen(
        edgekit_command("twin", "up", "rpi4"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: starting.poll() is not None or any(twin.pid for twin in all_twins()))
    assert starting.poll() is None
    starting.kill()
    starting.wait()
    taken = up("rpi4", RPI4)
    assert taken.already_running
    assert on_twin(taken.access, "echo hello") == "hello\n"
    assert len([process for process in running() if process.folder == twin_folder("rpi4")]) == 1


def test_a_twin_whose_folder_is_gone_is_found_and_ended(no_twins: None) -> None:
    up("lost", RPI4)
    for path in sorted(twin_folder("lost").iterdir()):
        path.unlink()
    twin_folder("lost").rmdir()
    (stray,) = all_twins()
    assert (stray.name, stray.condition) == ("lost", "stray")
    answer = edgekit_json("twin", "down", "--all")
    assert answer["twins"][0]["how"] == "killed"
    assert all_twins() == ()
    assert processes_with(str(machines_dir())) == []


def test_a_damaged_twin_hides_no_other_and_can_be_removed(no_twins: None) -> None:
    up("broken", RPI4)
    (twin_folder("broken") / "twin.json").write_text("{")
    up("whole", RPI4)
    assert {t.name: t.condition for t in all_twins()} == {"broken": "damaged", "whole": "running"}
    assert edgekit("twin", "up", "broken").returncode != 0
    assert edgekit("twin", "down", "--all", "--delete").returncode == 0
    assert processes_with(str(machines_dir())) == []


def test_a_system_that_cannot_start_is_reported_with_its_console(no_twins: None) -> None:
    up("rpi4", RPI4)
    down("rpi4")
    (twin_folder("rpi4") / "disk.qcow2").write_bytes(b"no disk" * 10000)
    answer = edgekit("twin", "up", "rpi4")
    assert answer.returncode == 8
    assert "--fresh" in answer.stderr or "emulator" in answer.stderr
    assert all(t.pid is None for t in all_twins())
    assert edgekit("twin", "up", "rpi4", "--fresh").returncode == 0
