"""What profiles and device files say of microcontrollers, and what their measurements become."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from support.profiles import BAREMETAL_BOARD, LINUX_BOARD, write_profile

from edgekit.aot.firmware.firmware_file import FirmwareFile, Function
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.metrics import HostState
from edgekit.devices.base import BenchSamples, MemoryUse
from edgekit.devices.choice import device_for
from edgekit.devices.registry import add_device, known_devices
from edgekit.devices.serial.device import SerialDevice
from edgekit.devices.serial.faults import explain_fault
from edgekit.devices.serial.measure import counted, kernel_times
from edgekit.devices.serial.messages import FaultReport, parse_fault, parse_hello, parse_model
from edgekit.profiles.board import check_board, load_board
from edgekit.profiles.hardware import families
from edgekit.project.devices import SshEntry, make_entry, make_line_entry, make_login
from edgekit.verbs.bench import summarise_samples

_FIRMWARE = """
[firmware]
family = "nrf5"
clock = 64_000_000
uart = 0x40002000
uart_irq = 2
tx_pin = 6
rx_pin = 8

[flash]
driver = "openocd"
scripts = ["target/nrf52.cfg"]
"""
_BOARD = BAREMETAL_BOARD + _FIRMWARE


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ('family = "nrf5"', 'family = "nrf6"', "firmware.family"),
        ("clock = 64_000_000", "clock = 64", "firmware.clock"),
        ("uart_irq = 2\n", "", "firmware.uart_irq"),
        ("tx_pin = 6", "tx_pin = 6\nmodem = 1", "firmware.modem"),
        ("rx_pin = 8", 'rx_pin = 8\nstack = "2 MiB"', "firmware.stack"),
        ("rx_pin = 8", "rx_pin = 8\ncaches = 1", "firmware.caches"),
        ('driver = "openocd"', 'driver = "jlink"', "flash.driver"),
        ('"target/nrf52.cfg"', '"../../etc/evil.cfg"', "flash.scripts"),
        ('"target/nrf52.cfg"', '"-c shutdown.cfg"', "flash.scripts"),
        ('scripts = ["target/nrf52.cfg"]\n', "", "flash.scripts"),
        ('driver = "openocd"', 'driver = "uf2"\ntarget = "X"', "flash.family_id"),
        ('driver = "openocd"', 'driver = "pyocd"\ntarget = "--pack=/tmp/x"', "flash.target"),
    ],
)
def test_what_is_wrong_with_firmware_and_flash_is_told(
    before: str, after: str, key: str, tmp_path: Path
) -> None:
    assert check_board(write_profile(tmp_path, "sound", _BOARD)) == ()
    assert before in _BOARD
    problems = check_board(write_profile(tmp_path, "odd", _BOARD.replace(before, after)))
    assert key in {problem.key for problem in problems}


def test_firmware_means_nothing_on_a_linux_board(tmp_path: Path) -> None:
    problems = check_board(write_profile(tmp_path, "pi", LINUX_BOARD + _FIRMWARE))
    assert {"firmware", "flash"} <= {problem.key for problem in problems}


def test_a_family_needs_the_numbers_that_its_c_file_uses() -> None:
    assert set(families()["cmsdk"]) == {"uart", "uart_irq", "uart_clock"}
    assert set(families()["stm32f4"]) == {
        *("uart", "uart_irq", "uart_enable", "tx_pin", "rx_pin", "alternate")
    }


def test_a_number_with_a_default_in_the_c_file_may_be_left_out(tmp_path: Path) -> None:
    assert families()["stm32f7"]["supply"] is False
    known = load_board("stm32h747i-disco")
    text = known.origin.read_text(encoding="utf-8").replace(known.name, "mine")
    assert check_board(write_profile(tmp_path, "mine", text)) == ()
    assert check_board(write_profile(tmp_path, "mine", text.replace("supply = 4\n", ""))) == ()


@pytest.mark.parametrize(
    ("cpu", "core"),
    [
        (0x410CC200, "Cortex-M0"),
        (0x410CC601, "Cortex-M0+"),
        (0x410FD213, "Cortex-M33"),
        (0x410FD230, "Cortex-M85"),
        (0x40141185, "RV32IMAC"),
        (0x40101104, "RV32IMC"),
        (0x4000112D, "RV32IMAFDC"),
    ],
)
def test_a_core_is_told_by_its_register(cpu: int, core: str) -> None:
    data = bytes(20) + struct.pack("<7I", 1_000_000, cpu, 1, 1024, 0, 0, 0)
    assert parse_hello(data).core == core


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (2, "faulted in conv_1: it executed an instruction that this core does not have"),
        (7, "faulted in conv_1: it wrote to the address 0x00001000, where there is no memory"),
        (24, "faulted in conv_1: cause 24"),
    ],
)
def test_a_fault_of_a_risc_v_core_is_told_by_its_cause(cause: int, says: str) -> None:
    report = replace(_fault(cfsr=0x1000), exception=cause)
    error = explain_fault("wing", report, replace(_FIRMWARE_FILE, machine="EM_RISCV"), 8192)
    assert says in error.message
    assert "ra is in main" in error.details


def test_a_device_on_a_line_is_written_down_and_found(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    board = load_board("stm32f405")
    entry = make_line_entry("wing", board, "/dev/ttyACM0", baud=921_600, probe="0669FF")
    add_device(entry, file=file)
    assert known_devices(None, file)["wing"].entry == entry
    device = device_for(load_board("stm32f405"), "wing", {"wing": entry})
    assert isinstance(device, SerialDevice)
    assert (device.port, device.baud, device.probe) == ("/dev/ttyACM0", 921_600, "0669FF")


@pytest.mark.parametrize(
    "port",
    [
        "ttyACM0",
        "spy:///dev/tty",
        "socket://host",
        "rfc2217://h:1/x",
        "unix://x",
        "-rf",
        "/dev/tty\n",
    ],
)
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="is no serial port"):
        make_line_entry("wing", load_board("stm32f405"), port)


def test_a_socket_of_this_machine_is_a_port_of_this_machine_alone() -> None:
    port, board = "unix:///run/board/line", load_board("stm32f405")
    assert make_line_entry("wing", board, port).serial == port
    with pytest.raises(UsageError, match="a socket of this machine"):
        make_line_entry("wing", board, port, via=make_login("x", board.name, "me@lab.example"))


def test_the_two_kinds_of_devices_are_not_mistaken() -> None:
    with pytest.raises(UsageError, match="over SSH"):
        make_line_entry("pi", load_board("rpi4"), "/dev/ttyACM0")
    with pytest.raises(UsageError, match="bare-metal board") as caught:
        make_entry("wing", load_board("stm32f405"), "pi@host")
    assert "--port" in (caught.value.hint or "")
    with pytest.raises(DeviceError, match="the serial port of wing is unknown"):
        device_for(
            load_board("stm32f405"),
            "wing",
            {"wing": SshEntry("wing", "stm32f405", "host")},
        )


_CALM = HostState(None, 64.0, None, 1)


def _measured(emulated: bool) -> BenchSamples:
    found = counted(
        [640, 640, 704],
        [("conv", 512), ("dense", 128)],
        64_000_000,
        25_000_000 if emulated else None,
    )
    return BenchSamples(
        nanoseconds=(10_000, 10_000, 11_000),
        warmup=0,
        threads=1,
        memory=MemoryUse(0, 5000),
        host_before=_CALM,
        host_after=_CALM,
        preemptions=None,
        kernels=kernel_times(found),
        counted=found,
    )


def test_cycles_of_a_real_core_have_times() -> None:
    report = summarise_samples(Path("b"), "stm32f405", "wing", _measured(False), "hardware")
    assert report.counted is not None
    assert (report.counted.unit, report.counted.clock) == ("cycles", 64_000_000)
    assert (report.counted.minimum, report.counted.median, report.counted.maximum) == (
        640,
        640,
        704,
    )
    assert [(s.name, s.count, s.share) for s in report.counted.steps] == [
        ("conv", 512, 0.8),
        ("dense", 128, 0.2),
    ]
    assert report.memory.model_peak == 5000
    assert report.profile is not None
    assert report.profile.seconds == pytest.approx(10e-6)


def test_instructions_of_an_emulated_core_have_none() -> None:
    report = summarise_samples(Path("b"), "mps2-an386", "twin", _measured(True), "emulator")
    assert report.counted is not None
    assert (report.counted.unit, report.counted.clock) == ("instructions", None)
    # 640 ticks of 40 ns, 64 ns an instruction.
    assert report.counted.median == 400
    assert report.profile is None
    assert report.notes == (
        "emulated: its instructions are counted one by one; times are the emulator's own",
    )


_FIRMWARE_FILE = FirmwareFile(
    Path("f"), "0" * 40, (), 0, (Function("conv_1", 0x100, 0x40), Function("main", 0x140, 0x10))
)


def _fault(**registers: int) -> FaultReport:
    values = {"cfsr": 0, "bfar": 0, "pc": 0x120, **registers}
    return FaultReport(
        3,
        values["cfsr"],
        1 << 30,
        0,
        values["bfar"],
        0xFFFFFFF9,
        0x20001000,
        (0, 0, 0, 0, 0, 0x141, values["pc"], 1 << 24),
    )


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (
            _fault(cfsr=1 << 9 | 1 << 15, bfar=0xE0000004),
            "faulted in conv_1: it used the address 0xe0000004, where there is no memory",
        ),
        (_fault(cfsr=1 << 16, pc=0x148), "faulted in main: it executed an instruction"),
        (_fault(cfsr=1 << 25), "faulted in conv_1: it divided by zero"),
        (_fault(pc=0x900), "faulted in an unknown function"),
        (_fault(cfsr=1 << 20), "ran out of its 8 KiB of stack in conv_1"),
    ],
)
def test_a_fault_is_told_by_its_registers(report: FaultReport, says: str) -> None:
    error = explain_fault("wing", report, _FIRMWARE_FILE, 8192)
    assert says in error.message
    assert "lr is in main" in error.details


@pytest.mark.parametrize("parse", [parse_hello, parse_model, parse_fault])
def test_answers_that_are_cut_short_are_refused(parse: object) -> None:
    for size in range(20):
        with pytest.raises(ValueError, match="belong"):
            parse(bytes(size))  # type: ignore[operator]
