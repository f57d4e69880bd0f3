"""What QEMU is told, how its control channel is understood, and which ports are free."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples

from edgekit.base.errors import UsageError
from edgekit.profiles.board import load_board
from edgekit.twin import qmp
from edgekit.twin.access import choose_port, is_free
from edgekit.twin.image import Image
from edgekit.twin.machine import counting_instructions, hardware_of, twin_folder
from edgekit.twin.qemu import command_line
from edgekit.twin.state import Hardware, TwinState

STATE = TwinState(
    name="kitchen",
    board="rpi4",
    uuid=str(uuid.UUID(int=7)),
    hardware=Hardware("virt", "cortex-a72", 2, 1 << 30),
    image="0" * 64,
    port=40022,
    wanted=True,
)


def test_the_twin_is_reached_on_loopback_alone_and_reaches_nothing() -> None:
    command = command_line(STATE, Image("0", Path("/image")), Path("/twin"))
    network = command[command.index("-netdev") + 1]
    assert "hostfwd=tcp:127.0.0.1:40022-:22" in network
    assert "restrict=on" in network
    assert command[command.index("-cpu") + 1] == "cortex-a72"
    assert command[command.index("-m") + 1] == "1024M"


def test_a_clock_that_counts_instructions_has_one_core_to_count() -> None:
    counting = counting_instructions(STATE.hardware)
    command = command_line(replace(STATE, hardware=counting), Image("0", Path("/i")), Path("/t"))

    assert command[command.index("-smp") + 1] == "1"
    assert command[command.index("-icount") + 1] == "shift=0,sleep=on"
    assert command[command.index("-accel") + 1] == "tcg,thread=single"
    assert "-icount" not in command_line(STATE, Image("0", Path("/i")), Path("/t"))


def test_a_comma_in_a_folders_name_ends_no_option() -> None:
    command = command_line(STATE, Image("0", Path("/image")), Path("/home/me,too"))
    assert any("file=/home/me,,too/disk.qcow2," in word for word in command)


@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "beagleplay", "jetson-orin"])
def test_linux_boards_have_twins(board: str) -> None:
    hardware = hardware_of(load_board(board))
    assert hardware.machine == "virt"
    assert 1 <= hardware.cores <= load_board(board).cpu.cores


@pytest.mark.parametrize("board", ["local", "mps2-an386", "nrf52840-dk"])
def test_other_boards_are_refused(board: str) -> None:
    with pytest.raises(UsageError, match=board):
        hardware_of(load_board(board))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "Kitchen", "-x", "x" * 80, "a\nb"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        twin_folder(name)


def test_a_chosen_port_can_be_listened_on_and_is_taken_then() -> None:
    port = choose_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_whatever_answers_on_the_socket_it_is_an_answer_or_an_error(
    tmp_path: Path, said: bytes
) -> None:
    with (
        _speaker(tmp_path, said) as path,
        pytest.raises(qmp.QmpError),
        qmp.connected(path, limit_s=0.5) as control,
    ):
        control.execute("query-status")


def test_no_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(qmp.QmpError), qmp.connected(tmp_path / "qmp", limit_s=0.1):
        pass


def test_events_between_question_and_answer_are_passed_over(tmp_path: Path) -> None:
    said = (
        b'{"QMP": {}}\n{"return": {}}\n{"event": "RTC_CHANGE"}\n{"return": {"status": "paused"}}\n'
    )
    folder = tmp_path / ("long" * 40)  # more than a socket's name may have
    folder.mkdir()
    with _speaker(folder, said) as path, qmp.connected(path, limit_s=60) as control:
        assert control.execute("query-status") == {"status": "paused"}


@contextmanager
def _speaker(folder: Path, said: bytes) -> Iterator[Path]:
    """Something that accepts one connection, says its piece and hangs up."""
    path = folder / "qmp"
    path.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as listener:
        patch.chdir(folder)
        listener.bind("qmp")
        listener.listen()
        listener.settimeout(240)

        def speak() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the client may hang up first
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(240)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=speak)
        thread.start()
        yield path
        thread.join()
