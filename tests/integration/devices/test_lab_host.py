"""A microcontroller whose serial port another machine has: a real SSH server, QEMU behind it."""

from __future__ import annotations

import hashlib
import os
import pty
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import serial
from support.microcontrollers import emulated, inference, toy_firmware, tripled
from support.needs import MICROCONTROLLERS, needs
from support.noisy_line import Harm, noisy_line
from support.ports import CLOSED_PORT
from support.pty_line import pty_line
from support.rfc2217_server import rfc2217_server
from support.rpc_lab import eventually
from support.ssh_server import SshServer, ssh_server
from support.twins import twins_in

from edgekit.base.errors import DeviceError, MissingToolError, UsageError
from edgekit.devices.base import DeviceBusy
from edgekit.devices.serial.device import SerialDevice
from edgekit.devices.serial.lab_host import LabHost
from edgekit.devices.serial.monitor import watch
from edgekit.profiles.board import load_board

pytestmark = needs("sshd", *MICROCONTROLLERS)

DATA = random.Random(5).randbytes(600)
NONE = f"/dev/ttyNONE{os.getpid()}"
"""No port of another test: a line that is taken is closed to all others of the machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("lab")) as running:
        running.connect().close()  # its host key is known from now on
        yield running


@pytest.fixture(scope="module")
def m4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SerialDevice]:
    """A twin with the toy model on it."""
    with twins_in(tmp_path_factory.mktemp("chips")):
        device = emulated("mps2-an386")
        with device.flashed(toy_firmware("mps2-an386")):
            pass
        yield device


def via(server: SshServer, port: str, board: str = "mps2-an386") -> SerialDevice:
    host = LabHost(server.entry("the host of wing", board), server.known_hosts)
    return SerialDevice("wing", load_board(board), port, 115200, host=host)


def refused(device: SerialDevice, why: str) -> DeviceError:
    with pytest.raises(DeviceError, match=why) as caught, device.connected():
        pass
    return caught.value


def test_a_terminal_of_another_machine_carries_an_inference(
    m4: SerialDevice, server: SshServer
) -> None:
    with pty_line(m4.port) as name:
        device = via(server, name)
        with device.flashed(toy_firmware("mps2-an386")) as (client, _, written):
            assert written == 0
            assert inference(client, DATA) == tripled(DATA)
        assert any("on a Cortex-M4" in seen.words for seen in watch(device, seconds=60.0))


def test_a_socket_that_another_machine_sees_does_as_well(
    m4: SerialDevice, server: SshServer
) -> None:
    with (
        noisy_line(m4.port, Harm()) as address,
        via(server, address).flashed(toy_firmware("mps2-an386")) as (client, _, written),
    ):
        assert written == 0
        assert inference(client, DATA) == tripled(DATA)


def test_a_port_server_that_another_machine_sees_does_as_well(
    m4: SerialDevice, server: SshServer
) -> None:
    with rfc2217_server(m4.port) as address, via(server, address).connected() as client:
        client.hello()
        assert inference(client, DATA) == tripled(DATA)


def test_a_connection_that_drops_in_the_middle_is_told_and_frees_the_port(
    m4: SerialDevice, server: SshServer
) -> None:
    with pty_line(m4.port) as name:
        device = via(server, name)
        with (
            pytest.raises(DeviceError, match="the connection to the host of wing was lost"),
            device.connected() as client,
        ):
            client.hello()
            server.drop_connections()
            inference(client, DATA)
        eventually(lambda: is_free_again(device))


def is_free_again(device: SerialDevice) -> bool:
    """The remote shell ends a moment after its connection."""
    try:
        with device.connected() as client:
            client.hello()
            assert inference(client, DATA) == tripled(DATA)
    except DeviceBusy:
        return False
    return True


def test_a_board_that_is_unplugged_over_there_is_told(
    server: SshServer,
) -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    os.close(theirs)
    with via(server, name).connected() as client:
        os.close(ours)
        with pytest.raises(DeviceError, match="the line to wing broke"):
            client.hello(20.0)


def test_who_wants_a_line_waits_for_the_end_of_a_look(server: SshServer) -> None:
    ours, theirs = pty.openpty()
    device = via(server, os.ttyname(theirs))

    def takes() -> bool:
        with device.held(patience=0):
            return True

    try:
        with ThreadPoolExecutor(1) as threads:
            with device.held(looking=True):
                waiting = threads.submit(takes)
                assert not wait([waiting], timeout=3.0).done
            assert waiting.result(240)
        with device.held():
            for other in (device.held(patience=0), device.held(looking=True)):
                with pytest.raises(DeviceBusy, match="in use by another edgekit"), other:
                    pass
    finally:
        os.close(ours)
        os.close(theirs)


def test_two_users_of_one_port_are_told_apart(server: SshServer) -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    try:
        with via(server, name).held():
            refused(via(server, name), "in use by another edgekit")
        with via(server, name).connected():
            pass
        with serial.Serial(name, exclusive=True):
            refused(via(server, name), "in use by another program")
    finally:
        os.close(ours)
        os.close(theirs)


def test_ports_that_are_none_are_told(server: SshServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(via(server, NONE), f"there is no serial port {NONE} on")
    refused(via(server, str(tmp_path / "file")), "is not a terminal")
    refused(via(server, f"socket://127.0.0.1:{CLOSED_PORT}"), "nothing listens at socket://")


def test_a_speed_that_the_host_can_not_set_is_told(server: SshServer) -> None:
    ours, theirs = pty.openpty()
    try:
        refused(replace(via(server, os.ttyname(theirs)), baud=123457), "can't be set to 123457")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_file_is_over_there_whole_while_it_is_needed(server: SshServer, tmp_path: Path) -> None:
    file = tmp_path / "firmware.elf"
    file.write_bytes(random.Random(1).randbytes(300_000))
    with via(server, NONE).held() as line:
        with line.tools.placed(file) as path:
            assert path != str(file)
            said = line.tools.run([line.tools.find("sha256sum", ""), path])
            assert said.output.split()[0] == hashlib.sha256(file.read_bytes()).hexdigest()
        eventually(lambda: not Path(path).parent.exists())
        with pytest.raises(MissingToolError, match=r"nothing-of-the-kind.* is not installed on"):
            line.tools.find("nothing-of-the-kind", "install it")


@needs("openocd")
def test_openocd_over_there_says_what_is_wrong(server: SshServer) -> None:
    device = via(server, NONE, "stm32f746g-disco")
    with (
        device.held() as line,
        pytest.raises(DeviceError, match=r"no debug probe is attached to .*127\.0\.0\.1"),
    ):
        device.write(toy_firmware("stm32f746g-disco"), line=line)


def test_what_can_only_be_written_on_the_spot_is_told(m4: SerialDevice, server: SshServer) -> None:
    device = via(server, m4.port)
    with (
        pytest.raises(UsageError, match=r"can only be written on .* itself"),
        device.flashed(toy_firmware("mps2-an386"), again=True),
    ):
        pass


def test_nothing_is_left_running_over_there(server: SshServer) -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    try:
        with via(server, name).connected():
            eventually(lambda: _users_of(name))  # the shell hands it to another process
        eventually(lambda: not _users_of(name))
        with pytest.raises(DeviceError), via(server, name).connected() as client:
            server.drop_connections()
            client.hello()
        eventually(lambda: not _users_of(name))
    finally:
        os.close(ours)
        os.close(theirs)


def _users_of(port: str) -> list[str]:
    """Other processes that have it open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()) == port and link.parts[2] != str(os.getpid()):
                found.append(link.parts[2])
    return found
