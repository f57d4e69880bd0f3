"""Serial ports that are not there, dead, taken, or lose their board."""

from __future__ import annotations

import os
import pty
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.c_trees import write_c_tree
from support.microcontrollers import firmware_for
from support.needs import needs
from support.ports import free_port

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.errors import DeviceError, MissingToolError
from edgekit.devices.base import DeviceBusy
from edgekit.devices.flash.programs import NO_PORTS
from edgekit.devices.serial.device import SerialDevice
from edgekit.devices.serial.frames import FrameDecoder, Noise, SerialFrame, encode_frame
from edgekit.devices.serial.link import FirmwareFault, NoAnswer
from edgekit.devices.serial.messages import ANSWER, FAULT, Request
from edgekit.devices.serial.monitor import Seen, watch
from edgekit.devices.serial.port import held
from edgekit.farm.worker import watch_line
from edgekit.profiles.board import load_board

BOARD = load_board("stm32f746g-disco")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))


def on(port: str, **other: object) -> SerialDevice:
    return SerialDevice("wing", BOARD, port, 115200, **other)  # type: ignore[arg-type]


def refused(device: SerialDevice, why: str) -> None:
    with pytest.raises(DeviceError, match=why), device.connected():
        pass


@contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """Our end of a line, and the other's name."""
    ours, theirs = pty.openpty()
    try:
        yield ours, os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_port_that_is_not_there_is_told() -> None:
    refused(on("/dev/ttyNONE"), "there is no serial port /dev/ttyNONE")


def test_a_socket_where_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refused(on(f"socket://127.0.0.1:{port}"), "nothing listens at socket://")


def test_what_is_no_terminal_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(on(str(tmp_path / "file")), "can't be opened")


def test_a_dead_line_is_told_in_seconds() -> None:
    with (
        terminal() as (_, name),
        on(name).connected() as client,
        pytest.raises(NoAnswer, match="wing does not answer"),
    ):
        client.hello(1.0)


def test_a_line_that_ends_is_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        on(f"socket://127.0.0.1:{server.getsockname()[1]}").connected() as client,
    ):
        server.accept()[0].close()
        with pytest.raises(DeviceError, match="the line to wing broke"):
            client.hello(60.0)


def test_a_line_that_another_edgekit_holds_is_told() -> None:
    with terminal() as (_, name):
        holding = (
            "import sys\nfrom edgekit.devices.serial.port import held\n"
            "with held(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", holding, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(DeviceError, match="in use by another edgekit"), held(name):
                pass
            other.stdin.close()
            other.wait()
        with held(name):
            pass


def takes(device: SerialDevice, patience: float = 0) -> bool:
    """Hold the line for a moment."""
    with device.held(patience):
        return True


def test_who_wants_a_line_waits_for_the_end_of_a_look() -> None:
    """However long a busy machine makes the look; a user's hold is not waited for."""
    with terminal() as (_, name), ThreadPoolExecutor(1) as threads:
        with on(name).held(looking=True):
            waiting = threads.submit(takes, on(name))
            assert not wait([waiting], timeout=0.5).done
        assert waiting.result(240)
        with on(name).held(), pytest.raises(DeviceBusy, match="in use by another edgekit"):
            takes(on(name))


def test_a_look_does_not_wait_for_a_user_of_the_line() -> None:
    with terminal() as (_, name), on(name).held():
        look = on(name).held(looking=True)
        with pytest.raises(DeviceBusy, match="in use by another edgekit"), look:
            pass


class Enough(Exception):
    """Ends the watch of a line."""


def test_a_board_that_takes_seconds_to_answer_is_not_lost() -> None:
    """As an emulated one does on a busy machine."""
    hello = bytes(20) + struct.pack("<7I", 216_000_000, 0, 1, 1024, 1, 1, 115200)
    over = threading.Event()
    with terminal() as (ours, name):

        def answer() -> None:
            over.wait(3.0)
            stopped_by_a_fault(ours, hello, over)

        thread = threading.Thread(target=answer)
        thread.start()
        states = []

        def say(state: dict[str, object]) -> None:
            states.append(state["state"])
            if state["state"] == "free":
                raise Enough

        try:
            with pytest.raises(Enough):
                watch_line(on(name), say)
        finally:
            over.set()
            thread.join()
    assert states == ["up", "free"]


def test_a_line_that_another_program_holds_is_told() -> None:
    import serial

    with terminal() as (_, name), serial.Serial(name, exclusive=True):
        refused(on(name), "in use by another program")


def test_answers_without_sense_are_told() -> None:
    with terminal() as (ours, name), on(name).connected() as client:

        def answer() -> None:
            decoder = FrameDecoder()
            asked: list[SerialFrame | Noise] = []
            while not asked:
                asked = decoder.feed(os.read(ours, 100))
            (question,) = asked
            assert isinstance(question, SerialFrame)
            short = SerialFrame(Request.HELLO | ANSWER, question.sequence, b"short")
            os.write(ours, encode_frame(short))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(DeviceError, match="invalid answer: 5 bytes where 48 belong"):
            client.hello(60.0)
        thread.join()


def stopped_by_a_fault(line: int, hello: bytes, over: threading.Event) -> list[int]:
    """Play a core that stops in `run` and answers as docs/serial-protocol.md says, but all its
    earlier frames come once more, right before each answer. Return the kinds of the requests."""
    decoder, kinds, late = FrameDecoder(), list[int](), b""
    fault, faulted = bytes(64), False
    while not over.is_set():
        readable, _, _ = select.select([line], [], [], 0.05)
        for request in decoder.feed(os.read(line, 4096)) if readable else []:
            assert isinstance(request, SerialFrame)
            kinds.append(request.kind)
            faulted = (faulted or request.kind == Request.RUN) and request.kind != Request.RESET
            if faulted:
                answer = SerialFrame(FAULT, request.sequence, fault)
            else:
                said = hello if request.kind == Request.HELLO else b""
                answer = SerialFrame(request.kind | ANSWER, request.sequence, said)
            os.write(line, late + encode_frame(answer))
            late += encode_frame(answer)
    return kinds


def test_what_answers_an_earlier_request_is_no_answer() -> None:
    """A fault that came late was once taken for the answer to the reset that follows it."""
    hello = bytes(20) + struct.pack("<7I", 1, 0, 1, 1024, 16, 16, 115200)
    over = threading.Event()
    with terminal() as (ours, name), on(name).connected() as client, ThreadPoolExecutor() as pool:
        board = pool.submit(stopped_by_a_fault, ours, hello, over)
        try:
            client.hello(60.0)
            client.write(0, 0, b"input")
            with pytest.raises(FirmwareFault):
                client.run(0, 60.0)
            with pytest.raises(FirmwareFault):
                client.memory()
            client.reset()
            client.hello(60.0)
        finally:
            over.set()
        kinds = board.result(60)
    known = [Request.HELLO, Request.WRITE, Request.RUN, Request.MEMORY, Request.RESET]
    assert list(dict.fromkeys(kinds)) == known
    assert kinds[-1] == Request.HELLO


def test_the_monitor_shows_text_frames_and_noise() -> None:
    said = b"boot 1.0\r\nready\r\n\0"
    said += encode_frame(SerialFrame(Request.MEMORY | ANSWER, 1, bytes(12)))
    said += bytes(range(128, 168)) + b"\0half a line"
    with socket.create_server(("127.0.0.1", 0)) as server:
        shown = watch(on(f"socket://127.0.0.1:{server.getsockname()[1]}"), ask=True)
        looked = threading.Event()

        def speak() -> None:
            with server.accept()[0] as client:
                assert client.recv(100)  # whoever opens a line throws away what came before
                client.sendall(said)
                looked.wait(240)  # a socket closed with unread bytes takes what it sent along

        thread = threading.Thread(target=speak)
        thread.start()
        try:
            seen = [next(shown) for _ in range(5)]
        finally:
            looked.set()
            thread.join()
        shown.close()
    assert seen == [
        Seen("text", "boot 1.0"),
        Seen("text", "ready"),
        Seen("frame", "answer to memory, 12 bytes"),
        Seen("noise", "40 bytes that are not a frame"),
        Seen("text", "half a line"),
    ]


@pytest.fixture
def firmware(tmp_path: Path) -> FirmwareFile:
    return firmware_for(BOARD, tmp_path / "out", write_c_tree(tmp_path / "c"))


@needs("openocd", "gcc-arm")
def test_openocd_without_a_probe_is_told(firmware: FirmwareFile) -> None:
    with pytest.raises(DeviceError) as caught:
        on("/dev/ttyNONE").write(firmware)
    assert caught.value.message == (
        "no debug probe is attached to this machine that could write to wing"
    )
    assert any("Error: open failed" in line for line in caught.value.details)


@needs("openocd")
def test_openocd_opens_no_port() -> None:
    """It would, on loopback, and do what any user says there."""

    def said(*words: str) -> str:
        command = ["openocd", *words, "-c", "adapter driver dummy", "-c", "init", "-c", "echo up"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line == "up\n":
                    break
            process.terminate()  # heard once its ports are open
            return "".join((*lines, process.stderr.read()))

    port = str(free_port())
    assert f"Listening on port {port}" in said(*NO_PORTS, "-c", f"tcl_port {port}")
    assert "Listening" not in said(*NO_PORTS)


@needs("gcc-arm")
def test_a_flash_tool_that_is_missing_is_told(
    firmware: FirmwareFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingToolError, match="openocd, which writes the firmware"):
        on("/dev/ttyNONE").write(firmware)
