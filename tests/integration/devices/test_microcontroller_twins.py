"""Emulated microcontrollers for real: QEMU, gdb, edgekit's firmware, and what goes wrong there."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.c_trees import write_c_tree
from support.microcontrollers import (
    BOARDS,
    LIMIT_S,
    emulated,
    firmware_for,
    inference,
    toy_firmware,
    tripled,
)
from support.needs import MICROCONTROLLERS, needs
from support.noisy_line import Harm, noisy_line
from support.processes import command_lines
from support.pty_line import pty_line
from support.rfc2217_server import rfc2217_server
from support.rpc_lab import eventually
from support.twins import edgekit_json, twins_in
from support.unix_line import line_of

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.measurer import core_measurer
from edgekit.devices.serial.device import SerialDevice
from edgekit.devices.serial.faults import explain_fault
from edgekit.devices.serial.frames import FrameDecoder, SerialFrame, encode_frame
from edgekit.devices.serial.link import BoardRestarted, FirmwareFault
from edgekit.devices.serial.messages import ANSWER, FAULT, Request
from edgekit.profiles.board import load_board
from edgekit.twin import microcontroller, qemu
from edgekit.twin.machine import down, status
from edgekit.twin.processes import process_of, twin_folder

pytestmark = needs(*MICROCONTROLLERS)

DATA = random.Random(3).randbytes(600)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("chips")
    with twins_in(folder):
        yield folder


@pytest.fixture(scope="module")
def m4(cache: Path) -> SerialDevice:
    return emulated("mps2-an386")


@pytest.mark.parametrize("name", BOARDS)
def test_each_board_runs_a_model_that_was_written_to_its_twin(name: str) -> None:
    device, firmware = emulated(name), toy_firmware(name)

    with device.flashed(firmware) as (client, hello, written):
        assert written == sum(segment.file_size for segment in firmware.segments)
        assert hello.build_id == firmware.build_id
        assert hello.core == load_board(name).cpu.name
        is_known = hello.core in ("Cortex-M3", "Cortex-M4", "RV32IMAC")
        assert core_measurer(hello.cpu) == ("emulator" if is_known else "hardware")
        model = client.model(0)
        assert (model.inputs, model.outputs, model.steps) == (1, 1, 2)
        assert (model.failed_check, model.keeps_inputs) == (0, True)
        assert client.tensor(0, 0, output=True).bytes == len(DATA)
        assert inference(client, DATA) == tripled(DATA)
        marks = client.memory()
        assert 0 < marks.stack_used < marks.stack == hello.stack

    with device.flashed(firmware) as (client, _, written):
        assert written == 0
        assert inference(client, DATA[::-1]) == tripled(DATA[::-1])


_COUNT_DOWN = {
    "cortex-m": '".syntax unified\\n1: subs %0, %0, #1\\n bne 1b" : "+l"(n) : : "cc"',
    "riscv32": '"1: addi %0, %0, -1\\n bnez %0, 1b" : "+r"(n)',
}
"""Two instructions for each count."""


@pytest.mark.parametrize("name", BOARDS)
def test_instructions_are_counted_one_by_one(name: str, tmp_path: Path) -> None:
    loop = "unsigned n = {n}u; __asm__ volatile(" + _COUNT_DOWN[load_board(name).cpu.arch] + ");"
    device, counts = emulated(name), []
    for n in (1_000_000, 3_000_000):
        firmware = toy_firmware(name, 16, loop.replace("{n}", str(n)))
        with device.flashed(firmware) as (client, _, _):
            client.write(0, 0, bytes(16))
            ticks = {client.run(0, LIMIT_S).cycles for _ in range(3)}
            assert device.chip is not None
            counts.append([microcontroller.instructions(tick, device.chip.clock) for tick in ticks])
    least, most = min(counts[0]), max(counts[1])
    assert most - least == pytest.approx(4_000_000, abs=400)  # the timer's own interrupts


def test_a_line_that_harms_what_it_carries_harms_no_inference(m4: SerialDevice) -> None:
    firmware = toy_firmware("mps2-an386")
    with m4.flashed(firmware):
        pass
    harm = Harm(changed=0.0004, lost=0.0004, repeated=0.05, invented=0.05, calm=1500)
    with (
        noisy_line(m4.port, harm) as address,
        replace(m4, port=address).connected() as client,
    ):
        assert client.hello(LIMIT_S).build_id == firmware.build_id
        for seed in range(200):
            data = random.Random(seed).randbytes(600)
            assert inference(client, data) == tripled(data)
            if harm.done > 4 and client.retries > 0:
                break
        assert harm.done > 4
        assert client.retries > 0


@pytest.mark.parametrize("line", [rfc2217_server, pty_line])
def test_a_terminal_and_a_port_of_another_host_work_as_well(
    line: Callable[[str], AbstractContextManager[str]], m4: SerialDevice
) -> None:
    with m4.flashed(toy_firmware("mps2-an386")):
        pass
    with (
        line(m4.port) as address,
        replace(m4, port=address).connected() as client,
    ):
        client.hello(LIMIT_S)
        assert inference(client, DATA) == tripled(DATA)


def test_a_lost_answer_does_not_run_the_model_twice(m4: SerialDevice) -> None:
    """Its arena is written over by each run: two would triple twice, had it no inputs kept."""
    with m4.flashed(toy_firmware("mps2-an386")) as (client, _, _):
        client.write(0, 0, DATA)
        steps = [client.run_step(0, step, LIMIT_S).cycles for step in (0, 1)]
        assert client.read(0, 0, len(DATA)) == tripled(DATA)
    harm = Harm()
    with (
        noisy_line(m4.port, harm) as address,
        replace(m4, port=address).connected() as client,
    ):
        client.hello(LIMIT_S)
        client.write(0, 0, DATA)
        client.run_step(0, 0, LIMIT_S)
        harm.repeated = 1.0
        again = client.run_step(0, 1, LIMIT_S)
        harm.repeated = 0.0
        assert again.cycles == steps[1]
        assert client.read(0, 0, len(DATA)) == tripled(DATA)


def test_a_reset_in_the_middle_is_noticed(m4: SerialDevice) -> None:
    with m4.flashed(toy_firmware("mps2-an386")) as (client, _, _):
        client.write(0, 0, DATA)
        client.reset()
        with pytest.raises(BoardRestarted, match="was reset while in use"):
            client.run(0, LIMIT_S)
        client.hello(LIMIT_S)
        assert inference(client, DATA) == tripled(DATA)


_UNDEFINED = """
#ifdef __riscv
__asm__ volatile("unimp");
#else
__asm__ volatile("udf #1");
#endif
"""


@pytest.mark.parametrize(
    ("also", "says"),
    [
        ("*(volatile int *)0xE8000000u = 1;", r"in more: it (used the address|wrote to)"),
        ("((void (*)(void))0xF0000001u)();", "it jumped to where there is no code"),
        (_UNDEFINED, "in more: it executed an instruction"),
    ],
)
@pytest.mark.parametrize("name", ["mps2-an386", "mps3-an547", "qemu-riscv32"])
def test_a_fault_is_told_with_its_function_and_survived(name: str, also: str, says: str) -> None:
    device, bad = emulated(name), toy_firmware(name, 600, also)
    with device.flashed(bad) as (client, hello, _):
        client.write(0, 0, DATA)
        with pytest.raises(FirmwareFault) as caught:
            client.run(0, LIMIT_S)
        explained = explain_fault(device.name, caught.value.fault, bad, hello.stack)
    assert re.search(says, explained.message), explained.message
    assert re.match("cfsr 0x|mcause", explained.details[0])

    # Another session resets it, and finds it sound.
    with device.flashed(bad) as (client, _, written):
        assert written == 0
        assert client.run_step(0, 0, LIMIT_S).status == 0


def test_a_fault_answers_the_request_that_led_to_it() -> None:
    """Read from the line, without our own reader's patience in between."""
    bad = toy_firmware("mps2-an386", 600, '__asm__ volatile("udf #1");')
    device = emulated("mps2-an386")
    with device.flashed(bad):
        pass
    decoder, hello, run, later = FrameDecoder(), 0x12340001, 0x12340002, 0x12340003
    with line_of(device.port) as line:
        line.settimeout(LIMIT_S)

        def answer(kind: Request, sequence: int, payload: bytes = b"") -> SerialFrame:
            line.sendall(encode_frame(SerialFrame(kind, sequence, payload)))
            while True:
                for frame in decoder.feed(line.recv(4096)):
                    if isinstance(frame, SerialFrame):
                        return frame

        assert answer(Request.HELLO, hello).sequence == hello
        stopped, again = answer(Request.RUN, run, bytes(4)), answer(Request.MEMORY, later)
        assert (stopped.kind, stopped.sequence) == (FAULT, run)
        assert (again.kind, again.sequence) == (FAULT, later)
        assert again.payload == stopped.payload
        assert answer(Request.RESET, later + 1).kind == Request.RESET | ANSWER


def test_a_core_that_does_not_say_why_it_stopped_is_told() -> None:
    """A Cortex-M0 can't read a word from an odd address, and has no register for the reason."""
    device = emulated("microbit")
    bad = toy_firmware("microbit", 600, "data[0] = (char)*(volatile int *)(data + 1);")
    with device.flashed(bad) as (client, hello, _):
        client.write(0, 0, DATA)
        with pytest.raises(FirmwareFault) as caught:
            client.run(0, LIMIT_S)
        explained = explain_fault(device.name, caught.value.fault, bad, hello.stack)
    assert "in more: an address or an instruction was not valid" in explained.message


@pytest.mark.parametrize("name", ["mps3-an547", "mps2-an505", "qemu-riscv32"])
def test_a_stack_that_overflows_is_told(name: str) -> None:
    """Where the core has a limit for it; elsewhere real boards have no memory below, QEMU's do."""
    device = emulated(name)
    deep = toy_firmware(name, 600, "volatile char big[20000]; big[0] = 1; data[0] = big[0];")
    with device.flashed(deep) as (client, hello, _):
        client.write(0, 0, DATA)
        with pytest.raises(FirmwareFault) as caught:
            client.run(0, LIMIT_S)
        explained = explain_fault(device.name, caught.value.fault, deep, hello.stack)
    assert "ran out of its 8 KiB of stack" in explained.message


def test_two_models_of_one_firmware_keep_apart(m4: SerialDevice, tmp_path: Path) -> None:
    first = write_c_tree(tmp_path / "a", "first", factor=3, count=600)
    second = write_c_tree(tmp_path / "b", "second", factor=5, count=100)
    firmware = firmware_for(m4.board, tmp_path / "out", first, second)

    with m4.flashed(firmware) as (client, hello, _):
        assert hello.models == 2
        assert [client.model(index).name for index in (0, 1)] == [
            "first of the tests",
            "second of the tests",
        ]
        assert inference(client, DATA, 0) == tripled(DATA)
        fives = bytes((5 * byte + 1) & 0xFF for byte in DATA[:100])
        assert inference(client, DATA[:100], 1) == fives
        assert inference(client, DATA, 0) == tripled(DATA)


def test_a_board_without_memory_for_inputs_gets_them_anew(tmp_path: Path) -> None:
    device = emulated("stm32f405")
    tree = write_c_tree(tmp_path / "c", count=60_000)  # an arena of 60,000 of 128 KiB, and as much
    tight = replace(
        device.board,
        memory=replace(
            device.board.memory,
            regions=tuple(
                replace(region, size=100 << 10) if region.use == "data" else region
                for region in device.board.memory.regions
            ),
        ),
    )
    data = random.Random(1).randbytes(60_000)
    with device.flashed(firmware_for(tight, tmp_path / "out", tree)) as (client, _, _):
        assert not client.model(0).keeps_inputs
        assert inference(client, data) == tripled(data)


def is_written_to(file: Path) -> bool:
    """A line printed by a gdb that has reached the emulator."""
    for pid, words in command_lines().items():
        if str(file) in words:
            with suppress(OSError):  # it has ended
                opened = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
                return any(name.startswith("socket:") for name in opened)
    return False


def test_an_emulator_that_is_killed_while_it_is_written_to_is_told_and_started_again(
    tmp_path: Path,
) -> None:
    name = "mps2-an500"
    device = emulated(name)
    large = firmware_for(
        device.board, tmp_path, write_c_tree(tmp_path / "c", weights=3_000_000, count=600)
    )
    folder = twin_folder(name)

    def unplug() -> None:
        eventually(lambda: is_written_to(large.path.resolve()))
        process = process_of(folder)
        assert process is not None
        qemu.kill(process)

    thread = threading.Thread(target=unplug)
    thread.start()
    with pytest.raises(DeviceError) as caught:
        for _ in range(20):
            device.write(large)
    thread.join()
    assert re.search("ended, or was not running|does not answer", caught.value.message)
    assert status(name).condition == "died"

    with emulated(name).flashed(large) as (client, _, written):
        assert written > 3_000_000
        assert inference(client, DATA) == tripled(DATA)


def test_a_twin_starts_blank_stops_and_is_found_again() -> None:
    board = load_board("mps2-an386")
    started = microcontroller.up("spare", board)
    assert not started.already_running
    assert status("spare").condition == "blank"
    assert microcontroller.up("spare", board).already_running
    listed = {twin["name"]: twin for twin in edgekit_json("twin", "status")["twins"]}
    assert listed["spare"]["serial"] == started.serial

    device = replace(emulated("mps2-an386"), name="spare", port=started.serial)
    device = replace(device, chip=replace(device.chip, folder=started.folder))
    with device.flashed(toy_firmware("mps2-an386")) as (client, _, _):
        assert inference(client, DATA) == tripled(DATA)
    assert status("spare").condition == "running"
    assert not microcontroller.up("spare", board, fresh=True).already_running
    assert status("spare").condition == "blank"

    assert down("spare").how == "powered off"
    assert status("spare").condition == "stopped"
    assert down("spare", delete=True).how == "was not running"
    assert not started.folder.exists()


def test_a_twin_of_another_kind_or_board_is_not_taken() -> None:
    microcontroller.up("mine", load_board("mps2-an386"))
    with pytest.raises(UsageError, match="is not a mps3-an547"):
        microcontroller.up("mine", load_board("mps3-an547"))
    down("mine", delete=True)
    with pytest.raises(UsageError, match="no emulator has the memory"):
        microcontroller.up("disco", load_board("stm32f746g-disco"))


def test_a_damaged_record_is_told(cache: Path) -> None:
    folder = microcontroller.up("torn", load_board("mps2-an386")).folder
    (folder / microcontroller.STATE_FILE).write_text("{")
    assert status("torn").condition == "damaged"
    with pytest.raises(DeviceError, match="is damaged"):
        microcontroller.up("torn", load_board("mps2-an386"))
    process = process_of(folder)
    assert process is not None
    down("torn", delete=True)
    assert not folder.exists()
