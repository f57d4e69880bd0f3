"""The devices that are known: written so that a person's own file survives it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.base.errors import DeviceError, ProjectError, UsageError
from edgekit.devices.choice import device_for
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.registry import add_device, find_device, known_devices, remove_device
from edgekit.devices.serial.device import SerialDevice
from edgekit.devices.serial.lab_host import LabHost
from edgekit.profiles.board import load_board
from edgekit.project.devices import (
    LineEntry,
    PlaceEntry,
    SshEntry,
    TwinEntry,
    make_line_entry,
    make_login,
    make_place_entry,
)
from edgekit.project.file import find_project

FULL = SshEntry(
    "kitchen", "rpi4", "fe80::1%eth0", "pi", 2222, '/home/me/my "key"', "jump:22", "/data/edgekit"
)


def test_what_is_added_is_known(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "devices.toml"
    plain = SshEntry("hall", "rpi5", "hall.local")

    add_device(FULL, file=file)
    add_device(plain, file=file)

    known = known_devices(None, file)
    assert [device.entry for device in known.values()] == [FULL, plain]
    assert known["hall"].origin == file


def test_a_key_of_the_users_own_file_starts_from_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "devices.toml"
    file.write_text('schema = 1\n[devices.hall]\nboard = "rpi5"\nhost = "h"\nkey = "keys/id"\n')
    monkeypatch.chdir("/")
    assert known_devices(None, file)["hall"].entry.key == f"{tmp_path}/keys/id"


def test_a_line_of_another_machine_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    board = load_board("stm32f405")
    host = make_login("x", board.name, "lab@host.example:2222", Path("/home/me/key"), "jump:22")
    far = make_line_entry("wing", board, "/dev/ttyACM0", baud=230400, via=host)
    near = make_line_entry("near", board, "/dev/ttyACM0")

    add_device(far, file=file)
    add_device(near, file=file)

    assert [device.entry for device in known_devices(None, file).values()] == [far, near]
    assert far.address == "/dev/ttyACM0 on lab@host.example:2222"
    assert near.via is None
    with pytest.raises(UsageError, match="not the address"):
        make_login("x", board.name, "-oProxy=x")


def test_the_line_of_another_machine_is_reached_through_that() -> None:
    board = load_board("stm32f405")
    host = make_login("x", board.name, "lab@host")
    far = make_line_entry("wing", board, "/dev/ttyS1", via=host)
    near = make_line_entry("near", board, "/dev/ttyS1")
    devices = [device_for(board, entry.name, {entry.name: entry}) for entry in (far, near)]
    assert [isinstance(device, SerialDevice) and device.host for device in devices] == [
        LabHost(replace(host, name="the host of wing")),
        None,
    ]


OLD_FILE = """\
schema = 1
[devices.pi]
board = "rpi4"
host = "10.0.0.7"
user = "pi"
port = 2222
key = "/keys/id"
proxy = "jump:22"
directory = "/data/edgekit"
[devices.nowhere]
board = "rpi4"
[devices.emulated]
board = "rpi4"
twin = true
user = "ignored"
[devices.real]
board = "rpi5"
twin = false
host = "rpi5"
[devices.near]
board = "stm32f405"
serial = "/dev/ttyACM0"
baud = 230400
probe = "0669FF"
key = "/ignored"
[devices.far]
board = "stm32f405"
serial = "socket://127.0.0.1:4000"
host = "lab"
key = "/keys/id"
[devices.rack]
board = "rpi4"
labgrid = "desk"
user = "me"
directory = "/data"
[devices.tray]
board = "stm32f405"
labgrid = "tray"
baud = 9600
probe = "1"
"""


def test_a_file_of_before_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(OLD_FILE)
    entries = {name: device.entry for name, device in known_devices(None, file).items()}
    assert entries == {
        "pi": SshEntry(
            "pi", "rpi4", "10.0.0.7", "pi", 2222, "/keys/id", "jump:22", "/data/edgekit"
        ),
        "nowhere": SshEntry("nowhere", "rpi4"),
        "emulated": TwinEntry("emulated", "rpi4"),
        "real": SshEntry("real", "rpi5", "rpi5"),
        "near": LineEntry("near", "stm32f405", 230400, "0669FF", "/dev/ttyACM0"),
        "far": LineEntry(
            "far",
            "stm32f405",
            serial="socket://127.0.0.1:4000",
            via=SshEntry("the host of far", "stm32f405", "lab", key="/keys/id"),
        ),
        "rack": PlaceEntry(
            "rack",
            "rpi4",
            place="desk",
            login=SshEntry("rack", "rpi4", user="me", directory="/data"),
        ),
        "tray": PlaceEntry("tray", "stm32f405", 9600, "1", "tray", SshEntry("tray", "stm32f405")),
    }
    again = tmp_path / "again.toml"
    for entry in entries.values():
        add_device(entry, file=again)
    assert {name: device.entry for name, device in known_devices(None, again).items()} == entries
    for key in ("proxy", "twin = true", "labgrid", "probe", "baud", "directory"):
        assert key in again.read_text()


def test_the_device_of_an_entry_depends_on_its_board(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(OLD_FILE)
    entries = {name: device.entry for name, device in known_devices(None, file).items()}
    chip, linux = load_board("stm32f405"), load_board("rpi4")
    tray, near = (device_for(chip, name, entries) for name in ("tray", "near"))
    assert isinstance(tray, SerialDevice)
    assert (tray.labgrid, tray.baud, tray.port) == ("tray", 9600, "labgrid's place tray")
    assert isinstance(near, SerialDevice)
    assert (near.labgrid, near.host, near.port) == (None, None, "/dev/ttyACM0")
    rack = device_for(linux, "rack", entries)
    assert isinstance(rack, SshDevice)
    assert rack.entry == entries["rack"]
    odd = LineEntry("odd", "rpi4", serial="/dev/ttyS0", via=SshEntry("x", "rpi4", "host"))
    over_ssh = device_for(linux, "odd", {"odd": odd})
    assert isinstance(over_ssh, SshDevice)
    assert over_ssh.entry == SshEntry("odd", "rpi4", "host")


def test_a_place_is_written_down_and_found(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    entry = make_place_entry("tray", load_board("stm32f405"), "tray", baud=9600)
    add_device(entry, file=file)
    assert known_devices(None, file)["tray"].entry == entry


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    add_device(FULL, file=file)

    with pytest.raises(UsageError, match="already"):
        add_device(FULL, file=file)
    moved = SshEntry("kitchen", "rpi4", "10.0.0.9")
    add_device(moved, replace=True, file=file)

    assert known_devices(None, file)["kitchen"].entry == moved


def test_removing_leaves_the_rest_of_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    mine = '# my notes\nschema = 1\n\n[devices.a]\nboard = "rpi4"\nhost = "a"  # the old one\n'
    file.write_text(mine)
    add_device(FULL, file=file)

    assert remove_device("kitchen", file)

    assert file.read_text() == mine
    assert not remove_device("kitchen", file)


def test_any_layout_can_be_edited(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text('schema = 1\ndevices = { a = { board = "rpi4", host = "a" } }  # all\n')

    add_device(FULL, file=file)
    assert remove_device("a", file)

    assert [device.entry for device in known_devices(None, file).values()] == [FULL]
    assert "# all" in file.read_text()


def test_the_projects_device_wins_over_the_users(tmp_path: Path) -> None:
    (tmp_path / "edgekit.toml").write_text(
        'schema = 1\n[devices.kitchen]\nboard = "rpi4"\nhost = "lab"\n'
    )
    file = tmp_path / "devices.toml"
    add_device(FULL, file=file)
    add_device(SshEntry("hall", "rpi4", "hall"), file=file)

    known = known_devices(find_project(tmp_path), file)

    assert {name: device.entry.address for name, device in known.items()} == {
        "kitchen": "lab",
        "hall": "hall",
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('host = "-oProxyCommand=x"', "host"),
        ('user = "a b"', "user"),
        ("port = 0", "port"),
        ('directory = "relative"', "directory"),
        ("prot = 22", "did you mean port"),
        ('proxy = "a b"', "proxy"),
        ("twin = 1", "twin"),
        ('host = "h"\ntwin = true', "one of the two"),
    ],
)
def test_a_wrong_entry_is_told_with_its_line(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(f'schema = 1\n[devices.a]\nboard = "rpi4"\n{line}\n')

    with pytest.raises(ProjectError, match=says) as caught:
        known_devices(None, file)

    assert str(file) in caught.value.message


def test_several_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    entries = [SshEntry(f"board-{n}", "rpi4", f"host{n}") for n in range(12)]

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda entry: add_device(entry, file=file), entries))

    assert set(known_devices(None, file)) == {entry.name for entry in entries}


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    add_device(FULL, file=file)

    with pytest.raises(UsageError, match="no device 'kitchin'") as caught:
        find_device("kitchin", known_devices(None, file))

    assert "kitchen" in str(caught.value.hint)


def test_a_board_means_the_one_device_of_that_board() -> None:
    other = SshEntry("nano", "rpi5", "nano")

    device = device_for(load_board("rpi4"), None, {"kitchen": FULL, "nano": other})

    assert isinstance(device, SshDevice)
    assert device.entry == FULL


def test_no_device_of_a_board_shows_both_ways_on() -> None:
    with pytest.raises(DeviceError, match="no device is known for the board rpi4") as caught:
        device_for(load_board("rpi4"), None, {})

    assert "edgekit device add" in str(caught.value.hint)
    assert "--twin" in str(caught.value.hint)


def test_a_device_of_another_board_is_refused() -> None:
    with pytest.raises(UsageError, match="has the board rpi4, but the build is for rpi5"):
        device_for(load_board("rpi5"), "kitchen", {"kitchen": FULL})


def test_a_named_twin_has_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path))

    with pytest.raises(UsageError, match="name two devices"):
        device_for(load_board("rpi4"), "kitchen", {"kitchen": FULL}, twin=True)
    with pytest.raises(UsageError, match="there is no twin 'shed'") as caught:
        device_for(load_board("rpi4"), "shed", {"kitchen": FULL}, twin=True)

    assert "edgekit twin up rpi4 --name shed" in str(caught.value.hint)
